"""A new level needs four things: the protocol of its subjects, its judge, a `Level` and a `Strategy`.

The level of this test judges shelves. A shelf keeps pages under keys, one in each of its slots. The four parts stand
below as they would stand in the four files of the product; commands, results, traces, shrinking, replays, pages and the
conformance test follow by themselves.
"""

import json
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol

import pytest
from typer.testing import CliRunner

from kvproof.check import run_conformance
from kvproof.check.cli.app import app
from kvproof.check.counterexample.store import load
from kvproof.check.hunting import explore_stage
from kvproof.check.oracle import level as levels
from kvproof.check.oracle.coverage import NOTHING, REPEATED
from kvproof.check.oracle.enabled import Reply, RuledJudge, enabled_when
from kvproof.check.oracle.level import LEVELS, Level, level_of
from kvproof.check.protocol.adapter_check import RequiredCalls, calls_of, check_adapter
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.finding import AdapterError, Finding
from kvproof.check.protocol.manager import Assumption, Config
from kvproof.check.protocol.operations import Count, TypedOperation
from kvproof.check.runs.session import Stage
from kvproof.check.search.operations_by_kind import OperationsByKind
from kvproof.check.search.strategies import STRATEGIES, Strategy
from kvproof.check.search.worlds import Sizes, draw_sizes
from kvproof.reports.frames import Lane, StepFrame

# 1. protocol/shelf.py: the protocol of the subjects, with the operations ----------------------------------------------


class ShelfConfig(Config):
    """One configuration of a shelf: `num_gpu_blocks` slots."""


class ShelfSubject(Protocol):
    """A shelf behind an adapter."""

    name: str
    capabilities: Capabilities
    assumptions: tuple[Assumption, ...]

    def open(self, config: ShelfConfig) -> None:
        """Make a new shelf with empty slots, and forget the old one."""

    def put(self, key: int, page: int) -> None:
        """Keep the page under a key that is not in use; one slot at least is empty."""

    def get(self, key: int) -> int:
        """The page under the key."""

    def discard(self, key: int) -> None:
        """Forget the page under the key."""


SHELF_CALLS = RequiredCalls("shelf subject", calls_of(ShelfSubject), marks=("put", "get", "discard"))


class ShelfOperation(TypedOperation, frozen=True):
    """What is asked of a shelf."""


class Put(ShelfOperation, tag="put", frozen=True):
    """Keep a page under a new key."""

    key: int
    page: Count

    def simpler(self):  # type: ignore[no-untyped-def]
        yield from (self.changed(page=page) for page in range(self.page))


class Get(ShelfOperation, tag="get", frozen=True):
    """Read the page under a key."""

    key: int


class Discard(ShelfOperation, tag="discard", frozen=True):
    """Forget the page under a key."""

    is_optional: ClassVar[bool] = True
    key: int


# 2. oracle/shelf.py: the judge ----------------------------------------------------------------------------------------


class ShelfJudge(RuledJudge):
    """One opened shelf, and the pages that it must have."""

    kinds = ShelfOperation.kinds()

    def __init__(self, subject: ShelfSubject, config: ShelfConfig, identities: object = None) -> None:
        check_adapter(subject, SHELF_CALLS)
        super().__init__(Reply(), self)
        self.subject, self.config, self.capabilities = subject, config, subject.capabilities
        self.coverage, self.notes = Counter[str](), Counter[str]()
        self.pages: dict[int, int] = {}
        self.is_sparse = False
        subject.open(config)

    def compare_all(self, context: str) -> None:
        """A shelf shows nothing between its calls."""

    @enabled_when(lambda judge: len(judge.pages) < judge.config.num_gpu_blocks)
    def op_put(self, key: int, page: int) -> bool:
        """A page is kept under a key that is not in use."""
        if key in self.pages:
            return False
        self.subject.put(key, page)
        self.pages[key] = page
        self.coverage["put"] += 1
        self.coverage["full"] += len(self.pages) == self.config.num_gpu_blocks
        return True

    @enabled_when(about=lambda judge: judge.pages)
    def op_get(self, key: int) -> bool:
        """The page under a key is the one that was put there."""
        page = self.subject.get(key)
        self.reply.text = f"page {page}"
        if page != self.pages[key]:
            sentence = f"key {key} has page $observed, and page $expected was put there"
            raise Finding("cache-content", sentence, expected=self.pages[key], observed=page)
        return True

    @enabled_when(about=lambda judge: judge.pages)
    def op_discard(self, key: int) -> bool:
        """The page under a key is forgotten."""
        self.subject.discard(key)
        del self.pages[key]
        self.coverage["discard"] += 1
        return True


def frame_of_shelf(judge: ShelfJudge, finding: Finding | None) -> StepFrame:
    """One lane for each key."""
    return StepFrame("", tuple(Lane(f"key {key}", f"page {page}", ()) for key, page in judge.pages.items()), (), ())


# 3. oracle/level.py: a Level ------------------------------------------------------------------------------------------

SHELF = Level(
    "shelf",
    ShelfConfig,
    ShelfOperation.kinds(),
    SHELF_CALLS,
    ShelfJudge,
    frame_of_shelf,
    {name: lambda can: True for name in ("put", "full", "discard")},
    begins_with="put",
    needs={"cache-content": NOTHING, "nondeterministic": REPEATED},
    other_needs="a shelf has pages and keys only",
)

# 4. search/strategies.py: a Strategy ----------------------------------------------------------------------------------


def draw_shelf(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
) -> ShelfConfig:
    """A shelf of a few slots."""
    return ShelfConfig(**({"num_gpu_blocks": min(5, sizes(random)[1])} | (fixed or {})))


ARGUMENTS = {"put": lambda run: (run.new_number(), run.random.randrange(4))}
SHELVES = Strategy(
    SHELF, "shelf", draw_shelf, partial(OperationsByKind, SHELF, {"discard": (0.3, 1.0)}, ARGUMENTS), run_length=40
)

# ----------------------------------------------------------------------------------------------------------------------

SUBJECTS = '''
from kvproof.check import Capabilities


class Shelf:
    """Right: a page goes into the first empty slot."""

    name = "shelf"
    capabilities = Capabilities()
    assumptions = ()

    def open(self, config):
        self.slots = [None] * config.num_gpu_blocks
        self.place = {}

    def put(self, key, page):
        self.place[key] = self.slot()
        self.slots[self.place[key]] = page

    def slot(self):
        return self.slots.index(None)

    def get(self, key):
        return self.slots[self.place[key]]

    def discard(self, key):
        self.slots[self.place.pop(key)] = None


class Overwrites(Shelf):
    """Wrong: a page goes into the slot after the last one, as if no other had become empty."""

    def slot(self):
        return len(self.place)
'''
FILE = "shelves.py"
SHORTEST = ["put", "put", "discard", "put", "get"]


@pytest.fixture(autouse=True)
def _new_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(levels, "LEVELS", (*LEVELS, SHELF))
    monkeypatch.setitem(STRATEGIES, SHELF.name, SHELVES)
    monkeypatch.chdir(tmp_path)
    Path(FILE).write_text(SUBJECTS)


def kvproof(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def judged(subject: str, command: str = "hunt", *options: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the checks in the result document."""
    here = ("--subject", f"{FILE}:{subject}", "--no-isolation", "--seed", "1", "--json", "result.json", "--out", "out")
    code, _ = kvproof(command, *here, *options)
    checks: list[dict[str, Any]] = json.loads(Path("result.json").read_text())["checks"]
    return code, checks


def test_a_hunt_finds_the_fault_shrinks_it_and_saves_a_trace_that_replays() -> None:
    code, checks = judged("Overwrites", "hunt", "--level", "shelf", "--budget", "20", "--stop-at-first")
    (check,) = (check for check in checks if check["verdict"] == "refuted")
    path = Path(check["trace"])
    trace = load(path)

    assert (code, check["id"], check["property"]) == (1, "shelf/cache-content", "cache-content")
    assert ([name for name, *_ in trace.operations], trace.config["num_gpu_blocks"]) == (SHORTEST, 2)
    assert [operation[2] for operation in trace.operations if operation[0] == "put"] == [0, 0, 1]
    assert trace.steps[4].endswith("page 1")
    assert f"key {trace.operations[4][1]}" in path.with_suffix(".html").read_text()
    assert kvproof("replay", str(path), "--no-isolation", "--trust")[0] == 1
    Path(FILE).write_text(SUBJECTS.replace("return len(self.place)", "return super().slot()"))
    code, output = kvproof("replay", str(path), "--no-isolation", "--trust")
    assert (code, "FIXED" in output) == (0, True)


def test_a_gate_walks_a_correct_subject_and_says_what_the_level_does_not_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Stage("nothing", 1, [], lambda budget: ())
    monkeypatch.setattr("kvproof.check.proving.stage.prover_stage", lambda share, level: nothing)
    monkeypatch.setattr(explore_stage, "specification_stage_of", lambda level, share, saving: nothing)
    code, checks = judged("Shelf", "verify", "--budget", "3")

    decided = {(one["judge"], one["property"]): one["verdict"] for one in checks if one["verdict"] != "unsupported"}
    assert code == 0
    assert decided == dict.fromkeys(
        [("shelf", "cache-content"), ("shelf", "nondeterministic"), ("hypothesis", "cache-content")], "not refuted"
    )
    reasons = {one["text"] for one in checks if one["verdict"] == "unsupported" and one["judge"] == "shelf"}
    assert reasons == {SHELF.other_needs}


def test_the_one_line_test_passes_a_correct_subject_and_fails_a_wrong_one() -> None:
    made: dict[str, Any] = {}
    exec(SUBJECTS, made)
    run_conformance(made["Shelf"], level="shelf", operations=2_000, isolation=False)
    with pytest.raises(AssertionError, match=r"key \d+ has page 1, and page 0 was put there"):
        run_conformance(made["Overwrites"], level="shelf", operations=2_000, isolation=False)


def test_a_subject_is_recognised_by_its_calls_and_has_to_have_all_of_them() -> None:
    made: dict[str, Any] = {}
    exec(SUBJECTS, made)
    assert level_of(made["Shelf"]()) is SHELF
    with pytest.raises(AdapterError, match="it looks like a shelf subject: choose that level"):
        run_conformance(made["Shelf"], isolation=False)
    code, output = kvproof("hunt", "--subject", "kvproof", "--level", "shelf", "--budget", "1")
    assert (code, "kvproof is of level manager, not shelf" in output) == (2, True)
    assert kvproof("explore", "--subject", f"{FILE}:Shelf", "--no-isolation")[0] == 2
