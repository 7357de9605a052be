"""The order of the tests, their signals, the words of commands, and how a test plants a fault in this process."""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import pytest
from tests.golden_files import Command
from typer.main import get_command

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import in_memory

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
Plant = Callable[[str, str, str, str], AbstractContextManager[None]]
COLLECTED = pytest.StashKey[set[str]]()  # the names of all tests that were collected, also of those that are not run

HEAVY = (  # files that take longest, by their processor time; one that began last would leave the other workers idle
    "fault_injection/test_planted_faults.py",
    "check/hunting/test_resume.py",
    "audit/mutation/test_code.py",
    "models/proofs/test_proofs.py",
    "check/hosts/test_hosts.py",
    "check/hunting/test_verify_resumed.py",
    "check/cli/test_prove.py",
    "check/search/test_hypothesis_machine.py",
    "audit/mutation/test_claimed.py",
    "check/search/exhaustive/test_specification.py",
    "check/isolation/test_slow_subjects.py",
    "models/refinement/test_refinement.py",
    "check/cli/test_command_line.py",
    "attacks/test_files.py",
    "check/search/test_hypothesis_levels.py",
    "check/hunting/test_one_hunt.py",
    "lawful/test_lawful_managers.py",
    "check/isolation/test_hostile_subjects.py",
    "check/test_conformance.py",
    "check/subjects/test_nano_vllm.py",
    "check/search/test_worlds.py",
    "check/proving/test_stage.py",
    "check/search/exhaustive/c_reader/test_exploration.py",
    "models/concolic/test_mutants.py",
    "check/cli/test_verify.py",
    "check/test_pytest_plugin.py",
    "audit/crosscheck/test_specification.py",
    "check/hunting/test_units_by_workers.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect no garbage while modules are imported, and search all objects less often later.

    A worker of xdist that collects all tests begins at another file than the others. So in a fresh clone each of them
    compiles a part of the files, and finds the others compiled.
    """
    folder, config = Path(__file__).parent, session.config
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and [*map(Path, config.args)] == [Path(folder.name)]:
        files = sorted(folder.rglob("test_*.py"))
        start = int(worker.removeprefix("gw")) * len(files) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.args[:] = [str(file) for file in files[start:] + files[:start]]
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(700, 10, 100)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write the words of commands (tests/golden_files.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest; the order must be the same in every worker."""
    config.stash[COLLECTED] = {name_of(item) for item in items}
    rank = {Path(__file__).parent / file: place for place, file in enumerate(HEAVY)}
    items.sort(key=lambda item: (rank.get(item.path, len(HEAVY)), item.path))


def name_of(item: pytest.Item) -> str:
    """The path below `tests/`, and the name, of a test."""
    return item.nodeid.removeprefix("tests/")


@pytest.fixture
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    """Runs a command; what it prints is compared with the golden file of this command, or written to it."""
    if request.config.getoption("--write-golden") and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("--write-golden takes one process: leave out -n")
    return Command(name_of(request.node), tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None, None, None]:
    """A test that passes, and whose commands print other words than before, fails."""
    yield
    given = item.funcargs.get("command")
    if isinstance(given, Command) and (difference := given.difference()):
        if item.config.getoption("--write-golden"):
            given.write()
            difference = f"The section was written. {difference}"
        pytest.fail(difference, pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def signals_that_are_not_ignored() -> Iterator[None]:
    """Tests interrupt runs, and nohup and the background jobs of a shell ignore these signals, for children too."""
    ignored = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def commands_that_are_made_once() -> Iterator[None]:
    """`CliRunner` would make all commands again from the signatures of their functions at each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def plant() -> Plant:
    """Plants a fault in this process: within the block, a text of a function of a module reads otherwise."""
    return lambda module, function, old, new: in_memory(Edit(function, old, new), module)
