"""The shipped catalogue of faults, one TOML file for each subject.

A file names its subject. Every table of it is a function of a file, and every entry a fault: its kind, the text that is
replaced, the new text, and what is wrong in a sentence. A fault that is not found has a fifth text: `equivalent: ` and
why no caller can notice it, or `blind spot: ` and the name of a row of `docs/blind-spots.md`.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from kvproof.audit.faults.planting import Fault

EQUIVALENT, BLIND_SPOT = "equivalent: ", "blind spot: "


@cache
def catalogue() -> tuple[Fault, ...]:
    """Every fault, by file and in its order. Raises ValueError for an entry that is not of the form above."""
    return tuple(fault for file in sorted(Path(__file__).parent.glob("*.toml")) for fault in _faults_in(file))


def _faults_in(path: Path) -> list[Fault]:
    document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    subject, folder = document.pop("subject"), document.pop("folder", "")
    return [
        _fault(subject, f"{folder}{file}", function, name, entry)
        for file, functions in document.items()
        for function, entries in functions.items()
        for name, entry in entries.items()
    ]


def _fault(subject: str, file: str, function: str, name: str, entry: list[str]) -> Fault:
    kind, old, new, sentence, *survives = entry
    reason = survives[0] if survives else ""
    if reason and not reason.startswith((EQUIVALENT, BLIND_SPOT)):
        raise ValueError(f"{subject}/{name}: a fault survives as {EQUIVALENT!r} or {BLIND_SPOT!r}, not as {reason!r}")
    equivalent = reason.removeprefix(EQUIVALENT) if reason.startswith(EQUIVALENT) else ""
    blind_spot = reason.removeprefix(BLIND_SPOT) if reason.startswith(BLIND_SPOT) else ""
    return Fault(name, subject, kind, file, function, old, new, sentence, equivalent, blind_spot)
