"""Certificates: for each obligation a question and a proof that another program can check, and that check."""
