"""What hunts of kvproof's own subjects do not reach: `python -m docs.generate.not_reached` writes it to engine-runs.md.

Each subject is hunted with one seed and effort, and the row is the line that the hunt prints. It needs Python 3.12.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.check.runs.store import RESULT
from kvproof.check.subjects.registry import NAMED
from kvproof.reports.document import read
from kvproof.reports.reached import not_reached
from kvproof.reports.result import Result
from kvproof.spec.trace import is_ours

PAGE = Path(__file__).resolve().parents[1] / "engine-runs.md"
HEADING, NEXT = "## What a hunt does not reach\n", "\n## "
EFFORT, SEED = "20000", "1"
HEAD = f"""
Each hunt says in one line what it did not reach. `report.txt`, `result.json` (`code`) and the page of the run have
what of each function did not run. For kvproof's own subjects, with `--effort {EFFORT} --seed {SEED}` (`python -m
docs.generate.not_reached` writes the table):

| subject | not reached |
|---|---|
"""


def rows() -> str:
    """A row for each subject of kvproof."""
    found = []
    for name in filter(is_ours, NAMED):
        with TemporaryDirectory() as folder:
            command = ["hunt", "--subject", name, "--effort", EFFORT, "--seed", SEED, "--out", folder]
            CliRunner().invoke(app, command)
            result = read(Path(folder) / RESULT, Result)
        found.append(f"| `{name}` | {not_reached(result)} |\n")
    return "".join(found)


def with_table(page: str, table: str) -> str:
    """The page with this table in place of the one that it has."""
    before, heading, rest = page.partition(HEADING)
    return f"{before}{heading}{HEAD}{table}{rest[rest.index(NEXT) :]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rows()), encoding="utf-8")
