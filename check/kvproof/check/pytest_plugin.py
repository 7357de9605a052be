"""The pytest plugin: saved counterexamples as tests, and the options of `run_conformance` on the command line.

A trace (`*.json`) that is named on the command line, or that lies under a folder of the ini option `kvproof_traces`, is
a test of its own: it passes when its replay says FIXED, fails with the steps when it says FAILED, and is an error when
it cannot be replayed. A trace may not choose code: a subject that is a command, a module or a file must be given by
`--kvproof-subject`, or be listed in `kvproof.toml` under `trusted_subjects`. pytest tells errors from failures by when
they come: so the replay is the set-up of the test.

Nothing of kvproof is imported before the first trace runs: who does not use the plugin pays for this file only.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvproof.check.counterexample.replay import Replay

TRACES = "kvproof_traces"
SEED_MAX = 2**63 - 1
UNLIMITED = 10**12  # operations: the budget ends the walk
COMMAND = "pytest {file} --kvproof-subject {subject}"
FIELDS = {"schema_version", "subject", "property", "operations"}  # what every trace has


class Refuted(Exception):
    """The counterexample still holds; the text is the whole argument."""


class NotReplayed(Exception):
    """The counterexample says nothing: the text is why."""


def _budget(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _seed(text: str) -> int:
    seed = int(text)
    if not 0 <= seed <= SEED_MAX:
        raise ValueError(text)
    return seed


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvproof", "kvproof: block managers and their counterexamples")
    group.addoption(
        "--kvproof-budget",
        metavar="SECONDS",
        type=_budget,
        help="what the fixture kvproof_options gives run_conformance: so much time, however many operations that is",
    )
    group.addoption(
        "--kvproof-seed", metavar="N", type=_seed, help="what the fixture kvproof_options gives run_conformance as seed"
    )
    group.addoption(
        "--kvproof-subject", metavar="S", help="replay traces on this subject instead of the one each was found in"
    )
    parser.addini(TRACES, "folders whose *.json are counterexamples saved by kvproof, to be replayed", "paths", [])


@pytest.fixture(scope="session")
def kvproof_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The budget and seed given on the command line, for `run_conformance(Adapter, **kvproof_options)`."""
    options: dict[str, Any] = {}
    budget, seed = request.config.getoption("--kvproof-budget"), request.config.getoption("--kvproof-seed")
    if budget is not None:
        options |= {"seconds": budget, "operations": UNLIMITED}
    if seed is not None:
        options["seed"] = seed
    return options


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "TraceFile | None":
    """Every JSON file under a configured folder; of those named on the command line, whatever looks like a trace."""
    if file_path.suffix != ".json":
        return None
    folders: list[Path] = parent.config.getini(TRACES)
    is_ours = any(file_path.is_relative_to(folder) for folder in folders)
    if is_ours or (parent.session.isinitpath(file_path) and _looks_like_a_trace(file_path)):
        return TraceFile.from_parent(parent, path=file_path)
    return None


def _looks_like_a_trace(path: Path) -> bool:
    from kvproof.reports.document import DocumentError, read_json

    try:
        document = json.loads(read_json(path))
    except (DocumentError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.keys() >= FIELDS


class TraceFile(pytest.File):
    """A saved counterexample."""

    def collect(self) -> Iterator[pytest.Item]:
        """Its replay, which is one test."""
        yield TraceItem.from_parent(self, name="replay")


class TraceItem(pytest.Item):
    """The replay of a counterexample."""

    _done: "Replay"

    def setup(self) -> None:
        """Replay it. Raises NotReplayed."""
        from kvproof.check.counterexample.replay import ReplayStatus
        from kvproof.check.runs.replay import replay, trust
        from kvproof.reports.document import DocumentError
        from kvproof.reports.printable import printable

        try:
            trusted = trust(command=COMMAND)
        except DocumentError as error:
            raise NotReplayed(str(error)) from error
        self._done = replay(self.path, self.config.getoption("--kvproof-subject"), trusted=trusted)
        if self._done.status is ReplayStatus.ERROR:
            raise NotReplayed(printable(self._done.text))

    def runtest(self) -> None:
        """Raises Refuted, with the text of the replay, if the counterexample still fails."""
        if self._done.finding is not None:
            raise Refuted(self._done.text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The argument itself: a traceback through the plugin says nothing."""
        if isinstance(excinfo.value, (Refuted, NotReplayed)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is, and what is done there."""
        return self.path, None, f"kvproof replay {self.path.name}"
