"""Stand-ins of which only what is listed may be asked, even where an engine catches every exception."""

from typing import Any

from kvproof.check.protocol.fault_attribution import StandInError

UNKNOWN: list[str] = []  # what was asked of stand-ins that do not have it


def require_known() -> None:
    """Raise StandInError if a stand-in was asked for something that it does not have, even if the engine went on."""
    if UNKNOWN:
        asked, UNKNOWN[:] = ", ".join(UNKNOWN), []
        raise StandInError(f"the engine asks a stand-in of kvproof for what it does not have: {asked}")


class Strict:
    """A stand-in of which only what is listed may be asked."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            UNKNOWN.append(f"{type(self).__name__}.{name}")
        raise AttributeError(name)
