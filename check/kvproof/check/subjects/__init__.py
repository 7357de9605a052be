"""The adapters through which kvproof drives the systems that it judges; one folder for each engine."""


class UnknownSubject(Exception):
    """No subject can be made by this name; the message says why, and which names there are."""
