"""The runs that refuted the base, replayed after the change: a process of its own, as a hunt is.

    python ... kvproof.check.hunting.gate.replayed OUT SUBJECT FILE...

It writes into OUT, for each file, the outcome of its replay and the property that is refuted now.
"""

import sys
from pathlib import Path

import msgspec

from kvproof.check.runs.replay import replay


class Replayed(msgspec.Struct, frozen=True):
    """status: as `kvproof replay` prints it. property: that is refuted now; empty if none is."""

    status: str
    property: str


def main(out: str, subject: str, *files: str) -> None:
    """Replay the files on a subject."""
    done = [replay(Path(file), subject) for file in files]
    found = [Replayed(str(one.status), one.finding.property if one.finding else "") for one in done]
    Path(out).write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
