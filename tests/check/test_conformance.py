"""The one-line test: what it asks, what it says, and what it does not let pass."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MethodType
from typing import Any, cast

import pytest

from kvproof.check import Capabilities, Config, ManagerAdapter, Unsupported, run_conformance
from kvproof.check import conformance as conformance_module
from kvproof.check.counterexample.replay import ReplayStatus
from kvproof.check.oracle.level import MANAGER
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Assumption, ManagerSubject, OutsideContract
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.replay import replay
from kvproof.check.search.strategies import MANAGERS, STRATEGIES
from kvproof.check.subjects.registry import find

Factory = Callable[[], ManagerSubject]
Altered = Callable[..., Factory]


class Refused(Exception):
    """No block is free."""


class Pool:
    """A manager that is not asked first: it refuses. With `leaks`, a refused call keeps what it took."""

    def __init__(self, num_blocks: int, block_size: int, leaks: bool) -> None:
        self.block_size, self.leaks = block_size, leaks
        self.free = list(range(num_blocks))
        self.tables: dict[int, list[int]] = {}

    def extend(self, seq: int, num_tokens: int) -> None:
        table = self.tables.setdefault(seq, [])
        missing = -(-num_tokens // self.block_size) - len(table)
        if missing > len(self.free) and not self.leaks:
            if not table:
                del self.tables[seq]
            raise Refused
        for _ in range(missing):
            if not self.free:
                self.tables.pop(seq)
                raise Refused
            table.append(self.free.pop())


class PoolAdapter(ManagerAdapter):
    """The pool, as kvproof asks for it."""

    name = "pool"
    capabilities = Capabilities(has_admission_query=False)
    refusals: tuple[type[Exception], ...] = (Refused,)
    leaks = False

    def make(self, config: Config) -> Pool:
        return Pool(config.num_gpu_blocks, config.block_size, self.leaks)

    def allocate(self, seq: int, tokens: list[int]) -> None:
        self.manager.extend(seq, len(tokens))

    def append(self, seq: int, num_tokens: int) -> None:
        self.manager.extend(seq, len(self.tokens[seq]))

    def release(self, seq: int) -> None:
        self.manager.free += self.manager.tables.pop(seq)

    def tables(self) -> dict[int, list[int]]:
        tables: dict[int, list[int]] = self.manager.tables
        return tables

    def num_free(self) -> int:
        return len(self.manager.free)


class LeakyAdapter(PoolAdapter):
    """The pool that keeps what a refused call took."""

    leaks = True


class Incomplete(ManagerAdapter):
    """An adapter of which most is missing."""

    capabilities = Capabilities(fork=True)

    def make(self, config: Config) -> None:
        return None


def test_the_built_in_manager_conforms(tmp_path: Path) -> None:
    run_conformance(find("kvproof"), operations=2_000, seconds=5, crashes=tmp_path)


def test_a_manager_that_refuses_instead_of_being_asked_conforms(tmp_path: Path) -> None:
    run_conformance(PoolAdapter, operations=2_000, expect=("admission refused", "append refused"), crashes=tmp_path)


class Unlisted(PoolAdapter):
    """An adapter that does not list the exception by which the pool refuses."""

    refusals = ()


@pytest.mark.parametrize("isolation", [True, False])
def test_an_exception_that_may_be_a_refusal_is_told_with_where_refusals_are_listed(
    tmp_path: Path, isolation: bool
) -> None:
    with pytest.raises(AssertionError, match=r"raised Refused; nothing was asked before, .* list it in `refusals`"):
        run_conformance(Unlisted, crashes=tmp_path, isolation=isolation)
    (path,) = tmp_path.glob("*.json")
    again = replay(path, f"{__file__}:Unlisted")
    assert again.finding is not None
    assert again.finding.kind == ("admission-sound", "admit Refused")
    assert "raised Refused; nothing was asked before" in again.finding.text


def ruling_out(altered: Altered, num_blocks: int) -> Factory:
    """What makes the example, by whose contract no sequence of so many blocks or more is forked."""

    def share(self: Any, parent: int, child: int) -> None:
        if len(self.manager.tables[parent]) >= num_blocks:
            raise OutsideContract("short-forks", "only short sequences are forked")
        self.manager.fork(parent, child)

    def make() -> ManagerSubject:
        subject = altered(share=share)()
        subject.assumptions = (Assumption("short-forks", "Only short sequences are forked."),)
        return subject

    return make


def test_a_call_outside_the_contract_refutes_nothing(
    altered: Altered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smallest = {"smallest": Scope(3, num_seqs=2, num_tokens=3, block_size=1)}
    short = replace(MANAGERS, _exhaustive=replace(MANAGERS.exhaustive, short=smallest))
    monkeypatch.setitem(STRATEGIES, MANAGERS.level.name, short)
    run_conformance(ruling_out(altered, 2), operations=2_000, crashes=tmp_path)


def test_an_operation_whose_every_call_is_outside_the_contract_was_not_checked(
    altered: Altered, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"nothing was refuted, but 1,000 operations never reached fork, so this"):
        run_conformance(ruling_out(altered, 0), operations=1_000, crashes=tmp_path)


def test_a_refused_call_that_leaks_is_refuted(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"failed-call-changes-nothing is refuted"):
        run_conformance(LeakyAdapter, config={"num_gpu_blocks": 40}, crashes=tmp_path)


def test_a_call_that_raises_is_refuted_and_its_file_replays(altered: Altered, example: Factory, tmp_path: Path) -> None:
    def fail(self: Any, seq: int) -> None:
        raise KeyError("no such sequence")

    def make(self: Any, config: Config) -> Any:
        manager = cast(ManagerAdapter, example()).make(config)
        manager.free = MethodType(fail, manager)
        return manager

    with pytest.raises(AssertionError) as refuted:
        run_conformance(altered(make=make), crashes=tmp_path)

    where = f"fail of {Path(__file__).relative_to(Path.cwd())}:{fail.__code__.co_firstlineno}"
    _, first, second, third, fourth, *_ = str(refuted.value).splitlines()
    assert first == "  preempt(group 1) raised KeyError: 'no such sequence'"
    assert second == f"  while calling {where}"
    assert third.startswith("    raised in Adapter.release of examples/forty_lines.py:")
    assert fourth.startswith("    raised in fail of ")
    (trace,) = tmp_path.glob("total-calls-*.json")
    assert [frame["function"] for frame in json.loads(trace.read_text())["frames"]] == ["Adapter.release", "fail"]
    assert replay(trace, altered(make=make)).status is ReplayStatus.FAILED
    assert replay(trace, altered()).status is ReplayStatus.FIXED


def test_a_manager_that_lies_about_its_free_blocks_is_refuted(altered: Altered, tmp_path: Path) -> None:
    def optimistic(self: Any) -> int:
        return len(self.manager.free_blocks) + (len(self.manager.tables) > 1)

    with pytest.raises(AssertionError, match="conservation is refuted"):
        run_conformance(altered(num_free=optimistic), crashes=tmp_path)


def test_a_manager_that_does_not_repeat_is_reported(altered: Altered, tmp_path: Path) -> None:
    answers = iter(range(10**9))

    with pytest.raises(AssertionError, match="nondeterministic is refuted"):
        run_conformance(altered(can_append=lambda self, group: next(answers) % 3 > 0), crashes=tmp_path)


def test_a_call_that_hangs_is_refuted(altered: Altered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.check.oracle.level.LEVELS", (replace(MANAGER, replay_seconds_max=0.2),))
    for name in ("HANG_SECONDS_MAX", "SECONDS_MAX"):
        monkeypatch.setattr(f"kvproof.check.oracle.replay.{name}", 0.2)
    monkeypatch.setattr(conformance_module, "ANSWER_SECONDS_MAX", 0.2)

    with pytest.raises(AssertionError, match="total-calls is refuted"):
        run_conformance(altered(release=lambda self, seq: time.sleep(60)), crashes=tmp_path)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ({"can_append": lambda self, group: None}, "can_append must return bool or Admission; it returned None"),
        ({"observe": lambda self: {}}, "observe must return Observation; it returned {}"),
        ({"tables": lambda self: {1: ["0"]}}, r"observe\(\).tables\[1\] must be a list of ints"),
        ({"append": lambda self, seq, count: ["ab"]}, "must return pairs of ints"),
    ],
)
def test_nonsense_is_the_fault_of_the_adapter_and_not_a_finding(
    altered: Altered, tmp_path: Path, calls: dict[str, Any], said: str
) -> None:
    with pytest.raises(AdapterError, match=said):
        run_conformance(altered(**calls), operations=500, crashes=tmp_path)


def test_the_error_for_an_adapter_that_lacks_a_call_names_it(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="Incomplete must define allocate, append, release, tables, num_free, can_"):
        run_conformance(Incomplete, crashes=tmp_path)


def test_an_object_that_is_no_subject_is_an_adapter_error(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="object is not a manager subject"):
        run_conformance(object, crashes=tmp_path)


def test_a_manager_that_accepts_no_configuration_does_not_pass(altered: Altered, tmp_path: Path) -> None:
    def refuse(self: Any, config: Config) -> None:
        raise Unsupported("never")

    with pytest.raises(AssertionError, match=r"forty-lines accepted no configuration that was drawn; .* reason: never"):
        run_conformance(altered(open=refuse), crashes=tmp_path)


def test_a_manager_that_refuses_every_configuration_of_a_size_passes_only_if_it_says_so(
    altered: Altered, tmp_path: Path
) -> None:
    """Behind such a refusal a fault would never be seen."""
    refused = set[int]()

    def make(self: Any, config: Config) -> Any:
        if config.block_size > 2:
            refused.add(config.block_size)
            raise Unsupported("large blocks")
        return type(self).make(self, config)

    said = r"never reached blocks of three or four slots, .*; forty-lines refused \d+ of \d+ .* reason: large blocks"
    with pytest.raises(AssertionError, match=said):
        run_conformance(altered(make=make), operations=1000, config={}, crashes=tmp_path)
    assert refused != set()

    def small() -> Any:
        subject: Any = altered(make=make)()
        subject.capabilities = replace(subject.capabilities, block_size_max=2)
        return subject

    refused.clear()
    run_conformance(small, operations=1000, config={}, crashes=tmp_path)
    assert refused == set(), "what the capabilities exclude is not drawn"


def test_a_walk_that_does_not_reach_what_is_expected_does_not_pass(altered: Altered, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="100 operations never reached swap_out, so this was not checked"):
        run_conformance(altered(), operations=100, config={}, expect=("swap_out",), crashes=tmp_path)


def test_a_situation_that_cannot_be_meant_is_told_with_the_one_that_may_be(altered: Altered, tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match=r"never reached eviction with a choic \(did you mean eviction with a choice"
    ):
        run_conformance(altered(), operations=100, config={}, expect=["eviction with a choic"], crashes=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"level": "page"}, "there is no level 'page'; the levels are manager, scheduler, pool"),
        ({"operations": 0}, "operations is at least 1; 0 was given"),
        ({"seed": "a"}, "seed is an integer; 'a' was given"),
        ({"seconds": 0}, "seconds is more than 0; 0 was given"),
        (
            {"config": {"blocksize": 4}},
            r"a configuration has no field 'blocksize' \(did you mean block_size\?\); it has block_size, ",
        ),
        ({"config": {"block_size": "four"}}, "block_size is an integer; 'four' was given"),
        ({"config": {"num_gpu_blocks": 0}}, "num_gpu_blocks is at least 1; 0 was given"),
        ({"config": {"watermark": 1.5}}, "watermark is a fraction of the GPU blocks, 0 to 1; 1.5 was given"),
        ({"config": {"keys": 4}}, "keys is 1 .*; 4 was given"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(altered: Altered, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_conformance(altered(), **arguments)


def test_a_subject_in_place_of_its_class_is_refused(altered: Altered) -> None:
    with pytest.raises(ValueError, match="factory must be a callable that makes a subject"):
        run_conformance(altered()())  # type: ignore[arg-type]


def test_a_fixed_configuration_is_kept(altered: Altered, tmp_path: Path) -> None:
    seen: set[tuple[int, int]] = set()

    def make(self: Any, config: Config) -> Any:
        seen.add((config.block_size, config.num_gpu_blocks))
        return type(self).make(self, config)

    run_conformance(altered(make=make), operations=300, config={"block_size": 3, "num_gpu_blocks": 5}, crashes=tmp_path)

    assert seen == {(3, 5)}


STORE = f"{Path(__file__).parents[2]}/examples/forty_line_store.py:Store"


@pytest.mark.parametrize(
    ("name", "level"),
    [("kvproof-scheduler", "scheduler"), ("kvproof-scheduler", "loop"), ("kvproof-pool", "pool"), (STORE, "store")],
)
def test_a_scheduler_a_pool_and_a_store_conform_at_their_levels(name: str, level: str, tmp_path: Path) -> None:
    run_conformance(find(name), level=level, operations=400, seconds=10, crashes=tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_broken_pool_is_refuted_at_its_level(tmp_path: Path) -> None:
    def factory() -> Any:
        pool: Any = find("kvproof-pool")()
        pool.free = lambda blocks: None
        return pool

    with pytest.raises(AssertionError, match=r"is refuted for kvproof-pool at step \d \(explorer\)"):
        run_conformance(factory, level="pool", crashes=tmp_path, isolation=False)
    (trace,) = tmp_path.glob("*.json")
    assert len(json.loads(trace.read_text())["operations"]) == 2


def test_a_subject_of_another_level_is_an_adapter_error(altered: Altered, tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="is not a scheduler subject: it has no add_request"):
        run_conformance(altered(), level="scheduler", crashes=tmp_path)
    with pytest.raises(AdapterError, match=r"^examples/forty_lines\.py:Adapter is not a scheduler subject: it has no"):
        run_conformance("examples/forty_lines.py:Adapter", level="scheduler", crashes=tmp_path)


def test_a_prefix_cache_that_is_declared_must_be_hit(
    altered: Altered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> ManagerSubject:
        subject: Any = altered()()
        subject.capabilities = replace(subject.capabilities, caching=True)
        made: ManagerSubject = subject
        return made

    monkeypatch.setattr(type(altered()()), "hits", lambda self, group: 0, raising=False)
    monkeypatch.setattr(type(altered()()), "step_done", lambda self, step: None, raising=False)
    monkeypatch.setattr(conformance_module, "NUM_OPERATIONS_FOR_ALL", 500)
    limits: dict[str, Any] = {"operations": 500, "crashes": tmp_path, "isolation": False}
    with pytest.raises(AssertionError, match=r"500 operations never reached hit, so this was not checked"):
        run_conformance(make, config={"caching": True}, **limits)
    run_conformance(make, config={"caching": False}, **limits)


def test_a_subject_that_refuses_everything_after_some_runs_is_checked_in_part(
    altered: Altered, example: Factory, tmp_path: Path
) -> None:
    num_opened = count()

    def make(self: Any, config: Config) -> Any:
        if next(num_opened) > 18:
            raise Unsupported("no memory is left")
        return cast(ManagerAdapter, example()).make(config)

    limits: dict[str, Any] = {"operations": 9_000, "config": {"num_gpu_blocks": 40}, "expect": ("admit",)}
    with pytest.raises(AssertionError, match=r"checked in part: .* of 9,000 operations; then no configuration gave"):
        run_conformance(altered(make=make), **limits, crashes=tmp_path, isolation=False)


@pytest.mark.parametrize("num_gpu_blocks", [8, 400])
@pytest.mark.parametrize("wrong", [None, "1"])
def test_a_refcount_of_a_wrong_type_is_the_fault_of_the_adapter_in_a_pool_of_any_size(
    wrong: object, num_gpu_blocks: int, altered: Altered, example: Factory, tmp_path: Path
) -> None:
    """In a large pool refcounts are compared from time to time only, and not as a part of an operation."""
    num_calls, refcounts = count(), type(example()).refcounts  # type: ignore[attr-defined]

    def shown(self: Any) -> list[Any]:
        return [wrong if next(num_calls) > 30 else refcounts(self)[0], *refcounts(self)[1:]]

    make = altered(refcounts=shown)
    with pytest.raises(AdapterError, match=r"observe\(\)\.refs must be a list of ints"):
        run_conformance(make, config={"num_gpu_blocks": num_gpu_blocks}, crashes=tmp_path, isolation=False)
