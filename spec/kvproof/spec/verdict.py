"""The words of a verdict, and the exit codes of every command."""

from enum import IntEnum, StrEnum


class Verdict(StrEnum):
    """How strong a claim is, strongest first; `refuted` is the opposite of a claim."""

    PROVED = "proved"
    EXHAUSTED = "exhausted"
    NOT_REFUTED = "not refuted"
    UNKNOWN = "unknown"
    REFUTED = "refuted"
    UNSUPPORTED = "unsupported"


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    REFUTED = 1
    USAGE = 2
    INTERNAL = 3
    INCONCLUSIVE = 4
    NOTHING_CHECKED = 5
    WORSE_THAN_BASELINE = 6
    INTERRUPTED = 130  # before anything was decided; later, an interrupted run is inconclusive
