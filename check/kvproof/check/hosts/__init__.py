"""Hosts: where work is done that is not done in this process, on this machine or by Ray; its times and signals."""
