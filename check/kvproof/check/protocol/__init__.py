"""What a subject must offer, and how operations, configurations and findings are described. Nothing is run here."""
