"""Faults that are planted into every run, to show that the harness detects them in this run.

A fault is a mover that does one thing wrong. The diagnosis of the harness is checked against a second memory of the
same shape, in which every word is its own address: the fault is repeated there, and the addresses tell where each wrong
word really comes from.
"""
