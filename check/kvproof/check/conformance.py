"""Conformance in one line: the test that the author of a block manager, a scheduler, a pool or a store writes.

    def test_the_manager_conforms() -> None:
        run_conformance(Adapter)

It searches small scopes, then walks at random. A finding is repeated, shrunk, saved with a regression test, and raised
as an AssertionError whose text is the refutation. The subject runs in a process of its own, so that a crash, a hang or
unlimited memory is a finding too, and does not end the test run.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn, cast

from kvproof.check.counterexample.keeping import KeptFinding
from kvproof.check.counterexample.store import refutation
from kvproof.check.hosts.time_limit import Limits
from kvproof.check.hunting.findings import features_of_both
from kvproof.check.hunting.head import here
from kvproof.check.hunting.unit import Judged, Walk, shortened
from kvproof.check.isolation.factory import factory_for, isolated
from kvproof.check.isolation.remote_search import explore, method_called
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.level import Level, level_named
from kvproof.check.oracle.repetition import confirm
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.adapter_fault import located
from kvproof.check.protocol.finding import AdapterError, FindingKey
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.protocol.suggestion import did_you_mean
from kvproof.check.runs.arguments import Narrowed
from kvproof.check.search.configurations import check_fixed
from kvproof.check.search.result import SearchResult
from kvproof.check.search.strategies import STRATEGIES, Strategy
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import name_of

EXPLORE_SHARE = 0.2  # of the time
SHORTEN_OPERATIONS_MAX = 100_000  # replayed to shorten a finding
NUM_OPERATIONS_FOR_ALL = 10_000  # of a walk that must use every capability
# The witness that a capability was used at all; the others are situations that a correct subject may avoid.
SIGNS_OF_USE = frozenset({"hit", "fork", "slide", "begin_swap", "swap_out", "reserve", "reset", "load", "send"})
ANSWER_SECONDS_MAX = 5.0  # for what one transition, or one run of a walk, has to do: far more than either needs


def run_conformance(
    factory: Callable[[], Any] | str,
    *,
    operations: int = 20_000,
    seconds: float | None = None,
    seed: int = 0,
    level: str = "manager",
    config: dict[str, Any] | None = None,
    expect: Iterable[str] | None = None,
    crashes: str | Path = "crashes",
    isolation: bool | None = None,
) -> None:
    """Raise AssertionError, with the shortest run found, if the subject breaks a property of the specification.

    factory makes a subject: an adapter derived from `ManagerAdapter`, or anything with the calls of `ManagerSubject`.
    It may also be the name of a subject, as `--subject` takes it, such as "path/to/adapter.py:Adapter".
    A call outside the contract of the engine (`OutsideContract`) refutes nothing, if another of its kind ends.
    At most so many operations are walked, and the small scopes before them are searched to their end, so the seed
    repeats a run on every machine; seconds limits the time of both in addition. level is "manager",
    "scheduler" (or "loop") for a whole scheduler (`SchedulerSubject`), "pool" for a pool of block ids (`PoolSubject`),
    or "store" for a KV store outside the device (`StoreSubject`). config fixes fields of the configuration, the others
    are drawn. expect names what the walk must reach, so that it cannot pass by doing nothing (`fork`, `copy-on-write`,
    `pool full`, ...); left out, it must admit something, and a walk of 10,000 operations or more must use every
    declared capability that `config` leaves on: a declared prefix cache must be hit. crashes is the folder for
    counterexamples and their regression tests. isolation: whether the subject is made and judged in a process of its
    own, by the name of its factory; left out, every subject that has a name and is not kvproof's own. A patch of a test
    does not reach that process: pass False to keep the subject in this one.
    Raises AdapterError if the adapter breaks the protocol, ValueError for an argument that makes no sense.
    """
    __tracebackhide__ = True
    strategy = STRATEGIES[level_named(level).name]
    _require_arguments(factory, operations, seconds, seed)
    check_fixed(config or {}, strategy.level.config)
    make = _factory(factory, isolation, Limits.within(seconds))
    subject: Any = None
    try:
        subject, limit = make(), math.inf if seconds is None else seconds
        name = factory if isinstance(factory, str) else name_of(factory) or ""
        strategy.level.check(subject, name)
        name = name or subject.name
        if config is None and strategy.can_explore:
            _explore(strategy, make, name, limit * EXPLORE_SHARE, seed, Path(crashes))
        deadline, hunted = monotonic() + limit, Walk(Judged(name), seed, operations, config)
        outside = _walk(hunted, subject, make, deadline, Path(crashes))
        done = hunted.total
        expected = _default_witnesses(strategy, subject, config or {}, done) if expect is None else set(expect)
        unended = [kind for kind in sorted(outside) if not done.kinds[kind]]
        _check_reach(subject.name, done, expected, strategy.level, unended)
        if monotonic() < deadline and (lacking := done.lacking(operations)):
            raise AssertionError(f"nothing was refuted, but {subject.name} was checked in part: {lacking}")
    except AdapterError as error:
        raise AdapterError(str(located(error, subject))) from None  # the text has the frames of the adapter
    finally:
        if isinstance(make, RemoteFactory):
            make.close()


def _require_arguments(factory: object, operations: int, seconds: float | None, seed: object) -> None:
    """Raise ValueError for an argument that makes no sense."""
    if operations < 1:
        raise ValueError(f"operations is at least 1; {operations} was given")
    if seconds is not None and seconds <= 0:
        raise ValueError(f"seconds is more than 0; {seconds} was given")
    if not isinstance(seed, int):
        raise ValueError(f"seed is an integer; {seed!r} was given")
    if not callable(factory) and not isinstance(factory, str):
        raise ValueError(f"factory must be a callable that makes a subject; it is a {type(factory).__name__}")


def _factory(factory: Callable[[], Any] | str, isolation: bool | None, limits: Limits) -> Callable[[], Any]:
    try:
        if isinstance(factory, str):
            return factory_for(factory, isolation, limits)
        return isolated(factory, isolation, limits)
    except UnknownSubject as error:
        raise AdapterError(f"{error} (in a process of its own; isolation=False keeps it in this one)") from None


def _explore(strategy: Strategy, make: Callable[[], Any], name: str, seconds: float, seed: int, folder: Path) -> None:
    """Search the scopes of the level that the subject can have. Raises AssertionError for the first finding."""
    __tracebackhide__ = True
    deadline = monotonic() + seconds
    scopes = strategy.exhaustive.short.values()
    for place, scope in enumerate(scopes):
        left = (deadline - monotonic()) / (len(scopes) - place)
        past: tuple[FindingKey, ...] = ()  # calls outside the contract, after which the search begins again
        try:
            while (done := _explored(strategy, make, scope, left, past)).counterexample is not None:
                found = done.counterexample
                if not found.finding.contract:
                    _fail(make, name, "explorer", done, seed, folder)
                if found.kind in past:  # the search cannot go past it
                    break
                past += (found.kind,)
        except Unsupported:
            continue


def _explored(
    strategy: Strategy, make: Callable[[], Any], scope: Scope, seconds: float, past: tuple[FindingKey, ...]
) -> SearchResult:
    return explore(strategy, make(), scope, seconds=seconds, transition_seconds=ANSWER_SECONDS_MAX, past=past)


def _walk(hunted: Walk, subject: Any, make: Callable[[], Any], deadline: float, folder: Path) -> set[str]:
    """Walk past calls outside the contract; their kinds of operation. Raises AssertionError for any other finding."""
    __tracebackhide__ = True
    head, outside, seed = here(lambda: subject, call_seconds=ANSWER_SECONDS_MAX), set[str](), hunted.seed
    fixed = tuple(sorted(hunted.fixed or ()))
    for one in head.walk_on(hunted, deadline):
        if (found := one.counterexample) is None:
            continue
        if not found.finding.contract or not (found := confirm(make, found)).finding.contract:
            _fail(make, hunted.subject.name, "walker", hunted.total, seed, folder, fixed)
        short = shortened(found, make, seed, SHORTEN_OPERATIONS_MAX, fixed=fixed)
        hunted.avoid(found, features_of_both(found, short))
        outside.add(found.operations[-1][0])
    return outside


def _default_witnesses(strategy: Strategy, subject: Any, config: dict[str, Any], done: SearchResult) -> set[str]:
    """The witnesses that a walk of this length must have reached, by the capabilities that the configuration leaves."""
    level = strategy.level
    if done.num_operations < NUM_OPERATIONS_FOR_ALL:
        return {level.begins_with}
    expected = level.expected_witnesses(Narrowed(subject, config).capabilities, config)
    return {level.begins_with, *(name for name in SIGNS_OF_USE if expected.get(name))}


def _check_reach(name: str, done: SearchResult, expect: set[str], level: Level, unended: list[str]) -> None:
    """Raise AssertionError unless the walk did something, and reached all that is expected.

    unended: kinds of operation of which every call was outside the contract.
    """
    __tracebackhide__ = True
    if done.is_unsupported or not done.num_operations:
        raise AssertionError(f"nothing was checked: {name} accepted no configuration that was drawn{done.refusal}")
    missing = [*sorted(witness for witness in expect if not done.coverage[witness]), *done.sizes_missed()]
    if missing := [*missing, *(kind for kind in unended if kind not in missing)]:
        known = {*level.kinds, *level.witnesses, *done.coverage, *done.sizes}
        words = [one if one in known else f"{one}{did_you_mean(one, known)}" for one in missing]
        raise AssertionError(
            f"nothing was refuted, but {done.num_operations:,} operations never reached {', '.join(words)}, "
            f"so this was not checked{_refused(name, done)}. Reached: {', '.join(sorted(done.coverage))}."
        )


def _refused(name: str, done: SearchResult) -> str:
    """What is said of the configurations that the subject refused; empty if there are none."""
    if not done.refusals:
        return ""
    return f"; {name} refused {done.refusals.total():,} of {done.num_drawn:,} configurations{done.refusal}"


def _fail(
    make: Callable[[], Any],
    name: str,
    judge: str,
    done: SearchResult,
    seed: int,
    folder: Path,
    fixed: tuple[str, ...] = (),
) -> NoReturn:
    """Shrink and save the counterexample, and raise AssertionError with it as text. fixed: see `Saving`."""
    __tracebackhide__ = True
    kept = KeptFinding(cast(Counterexample, done.counterexample))
    kept.keep(
        folder,
        name,
        judge,
        seed,
        make=make,
        shorten=lambda found: shortened(found, make, seed, SHORTEN_OPERATIONS_MAX, fixed=fixed),
        locate=lambda found: method_called(make, found),
        num_operations_before=done.num_operations,
    )
    text = kept.text if kept.trace is None else refutation(replace(kept.trace, text=kept.text), kept.path or kept.raw)
    raise AssertionError(text if kept.unsaved is None else f"{text}\nNot all is saved: {kept.unsaved}")
