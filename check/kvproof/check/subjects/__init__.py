"""The adapters through which kvproof drives the systems that it judges; one folder for each engine."""

from kvproof.check.hosts.workers import Unavailable


class UnknownSubject(Unavailable):
    """No subject can be made by this name; the message says why, and which names there are."""


class SubjectNotReady(UnknownSubject):
    """The process of a subject was not ready in time. On a machine that is less busy it may be."""

    is_busy = True
