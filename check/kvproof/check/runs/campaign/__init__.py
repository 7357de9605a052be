"""Campaigns: many subjects, releases, configurations and seeds are searched by workers; a killed one is resumed."""
