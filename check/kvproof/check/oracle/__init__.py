"""The judges: is what a subject showed allowed by the specification?"""
