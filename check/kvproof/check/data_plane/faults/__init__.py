"""Faults that are injected into every run, to see that the harness would have caught them in this very run.

A fault is a mover that does one thing wrong. What the harness says of it is held against a second memory of the same
shape, in which every word is its own address: the same fault is done there, and the addresses tell where each wrong
word truly comes from.
"""
