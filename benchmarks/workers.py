"""What `--workers` costs in processor time, and what it gains by the clock.

Each row is a command that is run several times, in turns with the others. The gain is the time by the clock of one
process divided by that of the row, so it says something only on a machine that does nothing else; the processor time is
that of the command and of all processes that it started. A hunt of 2,000,000 operations shows what stays of the costs
of the start; it runs once, because its length makes it steady.
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.driven import seconds_of

ROUNDS = 3
GAIN_MIN = 1.8
RATIO_MAX = 1.05
KVPROOF = (sys.executable, "-c", "from kvproof.check.cli import main; main()")
SUBJECT = Path(__file__).parents[1] / "examples" / "forty_lines.py"
HUNT = ("hunt", "--subject", f"{SUBJECT}:Adapter", "--seed", "1", "--effort")
EXPLORE = ("explore", "--scope", "rules-tables", "--seqs", "3", "--tokens", "4", "--blocks", "4", "--reader", "c")

Row = tuple[str, tuple[str, ...]]
HUNTS: tuple[Row, ...] = (
    ("one process", ()),
    ("--workers 1", ("--workers", "1")),
    ("--workers 2", ("--workers", "2")),
    ("--workers 4", ("--workers", "4")),
)
OF_HUNTS = "hunt of 500,000 operations", "hunt of 2,000,000 operations"
SEARCHES: tuple[Row, ...] = (("one process", ("--jobs", "1")), *HUNTS[1:])


def measured(command: tuple[str, ...]) -> tuple[float, float]:
    """The seconds of a command by the clock, and of the processors."""
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of((*KVPROOF, *command, "--out", f"{folder}/out"))


def compared(command: tuple[str, ...], rows: tuple[Row, ...], rounds: int) -> dict[str, tuple[float, float]]:
    """The means of each row: seconds by the clock, and of the processors."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in rows}
    for _ in range(rounds):
        for name, options in rows:
            found[name].append(measured((*command, *options)))
    return {
        name: (statistics.mean(s for s, _ in each), statistics.mean(p for _, p in each)) for name, each in found.items()
    }


def main(rounds: int = ROUNDS) -> dict[str, dict[str, tuple[float, float]]]:
    """Print a table for a short and a long hunt, and one for a search in C if there is a compiler."""
    measured((*HUNT, "1000"))  # so that no row pays for the compilation of modules
    tables: dict[str, tuple[tuple[str, ...], tuple[Row, ...], int]] = {
        OF_HUNTS[0]: ((*HUNT, "500000"), HUNTS, rounds),
        OF_HUNTS[1]: ((*HUNT, "2000000"), HUNTS, 1),
    }
    if shutil.which("cc"):
        tables["search in C of 346,031 states"] = (EXPLORE, SEARCHES, rounds)
    figures = {}
    for title, (command, rows, num) in tables.items():
        figures[title] = table = compared(command, rows, num)
        clock, processor = table["one process"]
        print(f"{title}: seconds by the clock (gain), of the processors (ratio to one process)")
        for name, (seconds, used) in table.items():
            print(
                f"  {name:<12} {seconds:7.1f} ({clock / seconds:4.2f})  {used:7.1f} ({used / processor:4.2f})",
                flush=True,
            )
    return figures
