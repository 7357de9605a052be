"""A run counts for a record if it breaks the same property in the same way, and not where the fault is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES

from kvproof.check.counterexample.store import raw_trace
from kvproof.check.hunting.corpus.factories import Factories, factories
from kvproof.check.hunting.corpus.matching import Matching, Wanted, broken
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.reports.document import encode
from kvproof.spec.trace import Operation

BAD, GOOD = f"{EXAMPLES}/forty_lines_broken.py:Adapter", f"{EXAMPLES}/forty_lines.py:Adapter"
NEW, ADMIT, RUN = ("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0)
FORKED: list[Operation] = [
    NEW,
    ADMIT,
    RUN,
    ("fork", 1, 2),
]  # the broken manager does not count the references of the child


@pytest.fixture(scope="module")
def makes() -> Iterator[Factories]:
    """The processes of the subjects, which all tests of this file share."""
    with factories() as found:
        yield found


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return saved(tmp_path / "forked.json", FORKED)


def saved(path: Path, operations: list[Operation], num_gpu_blocks: int = 2) -> Path:
    """A run as a tool writes it. What it says of the finding is not believed."""
    config = Config(block_size=2, num_gpu_blocks=num_gpu_blocks)
    found = Counterexample(config, operations, Finding("cow-copied", "something is wrong"))
    path.write_bytes(encode(raw_trace(BAD, found, "a tool", 1)))
    return path


def test_a_run_breaks_on_the_broken_manager_and_not_on_the_right_one(run: Path, makes: Factories) -> None:
    there = broken(run, BAD, makes)
    assert there is not None
    assert there.key[0] == "refcount-exact"
    assert broken(run, GOOD, makes) is None


def test_a_run_counts_for_the_record_whose_saved_run_breaks_alike(run: Path, tmp_path: Path, makes: Factories) -> None:
    longer = saved(tmp_path / "longer.json", [("new", 5, (5,), (1,)), *FORKED], 3)
    wanted = [Wanted("other", "no-double-free", str(run)), Wanted("leak", "refcount-exact", str(run), GOOD)]
    matching = Matching(BAD, wanted, makes)
    assert matching.take(longer) == "leak"
    assert [one.id for one in matching.left] == ["other"]


def test_a_record_whose_saved_run_breaks_otherwise_gets_no_run(run: Path, tmp_path: Path, makes: Factories) -> None:
    silent = saved(tmp_path / "silent.json", FORKED[:3])
    assert Matching(BAD, [Wanted("leak", "refcount-exact", str(silent), GOOD)], makes).take(run) is None


def test_a_run_that_breaks_the_good_release_too_counts_for_nothing(run: Path, makes: Factories) -> None:
    assert Matching(BAD, [Wanted("leak", "refcount-exact", str(run), BAD)], makes).take(run) is None


def test_a_run_of_another_property_counts_for_nothing(run: Path, makes: Factories) -> None:
    assert Matching(BAD, [Wanted("leak", "lists-agree", str(run), GOOD)], makes).take(run) is None


def test_one_finding_never_counts_for_two_records(run: Path, makes: Factories) -> None:
    twins = [Wanted("one", "refcount-exact", str(run), GOOD), Wanted("two", "refcount-exact", str(run), GOOD)]
    assert Matching(BAD, twins, makes).take(run) == "one"


def test_what_is_no_run_counts_for_nothing(run: Path, tmp_path: Path, makes: Factories) -> None:
    (tmp_path / "a.json").write_text("{}")
    assert Matching(BAD, [Wanted("leak", "refcount-exact", str(run), GOOD)], makes).take(tmp_path / "a.json") is None
    assert broken(saved(tmp_path / "b.json", FORKED), "no-such-subject", makes) is None
