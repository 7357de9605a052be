"""Hunts: units of search, the stages and the campaigns made of them, the store of results, and what is found."""
