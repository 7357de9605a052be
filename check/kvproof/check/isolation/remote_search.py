"""Searches of a subject that may live in another process: a subject in a process of its own is searched there.

When that process ends or does not advance, the run that it was in is repeated call by call; what this refutes is the
finding. If it refutes nothing, the process was only slow, and the search continues with the next run.

A search ends itself soon after its time is over: between two operations, or in a call that is interrupted. A process
that does not is ended, and what the journal has of its search is kept.
"""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from math import isfinite
from typing import Any, TypeVar

from kvproof.check.counterexample.trace_schema import CounterexampleError, require_run
from kvproof.check.isolation.fork_server_client import Fork, ServerGone
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import ENDED, ChannelError, pack
from kvproof.check.isolation.remote_subject import CRASH, HANG, SERVER, RemoteSubject, answered, new_fork
from kvproof.check.oracle import method_called as local
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.protocol.time_limit import GRACE_SECONDS, OutOfTime, Patience, seconds_left
from kvproof.check.search import random_walk, shrinking
from kvproof.check.search.exhaustive import subject as exhaustive
from kvproof.check.search.random_walk import DEFAULT_OPTIONS, WalkOptions
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import Strategy
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.trace import CodePlace

ANSWERS = frozenset({"done", "unsupported", "adapter", "stand-in", "unknown"})  # of a search; the others are faults
LOOK_SECONDS = 0.1
BEYOND_EFFORT_MAX = 10_000  # operations of a run in a scope, or with which a run of a scheduler drains
CALLS_OF_OPERATION_MAX = 2  # slow ones: so many limits without an operation, and the process is taken for stuck
Result = TypeVar("Result")
OnAdvance = Callable[[int, int], None]  # called with the numbers of runs and operations


class Stuck(Exception):
    """The searching process ended or stopped. It holds how, and the run under way as the journal has it."""

    def __init__(self, how: str, journal: Journal) -> None:
        super().__init__(how)
        self.how = how
        self.num_runs, self.num_operations = journal.look()
        self.run = journal.last_run()


class JudgeFailed(Stuck):
    """The judge failed in the process of the subject: by a fault of kvproof, or as the subject changed that process."""


class Ended(Stuck):
    """The searching process was ended, because the time of the run was over. It was not stuck."""


def walk(
    strategy: Strategy,
    subject: Any,
    seed: int,
    *,
    max_operations: int,
    seconds: float,
    fixed: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    options: WalkOptions = DEFAULT_OPTIONS,
) -> SearchResult:
    """`random_walk.walk`, where the subject lives. It continues after a process that was only slow.

    If the judge failed in the process of the subject, it judges the walk here, where the subject cannot change it.
    """
    if not isinstance(subject, RemoteSubject):
        limits: dict[str, Any] = {"max_operations": max_operations, "seconds": seconds, "fixed": fixed}
        return random_walk.walk(strategy, subject, seed, progress=progress, options=options, **limits)
    total, began = SearchResult(), time.monotonic()
    while True:
        before = total.num_operations
        request: dict[str, Any] = {
            "level": strategy.level.name,
            "seed": seed,
            "options": {
                "first_run": options.first_run + total.num_drawn,
                "known": options.known,
                "disabled": sorted(options.disabled),
                "pause_after": options.pause_after - before,
                "runs_before": options.runs_before + total.num_runs,
            },
            "max_operations": max_operations - before,
            "seconds": max(0.0, seconds - (time.monotonic() - began)),
            "fixed": fixed,
        }
        try:
            report = _progress_after(before, progress)
            total.continue_with(_result(SearchResult, subject, "walk", request, report, max_operations - before))
            return total
        except Finding as finding:  # of the process itself, not of a run: the subject could not be made again
            total.continue_with(SearchResult(Counterexample(strategy.level.config(), [], finding)))
            return total
        except Stuck as stuck:
            try:
                done = _stuck_result(strategy, subject, stuck)
            except JudgeFailed:  # the same runs again, judged here, call by call; a fault of kvproof shows itself again
                done = random_walk.walk(
                    strategy,
                    subject,
                    seed,
                    max_operations=max_operations - before,
                    seconds=max(0.0, seconds - (time.monotonic() - began)),
                    fixed=fixed,
                    options=replace(options, **{**request["options"], "disabled": options.disabled}),
                )
                total.continue_with(done)
                return total
            done.num_operations = min(stuck.num_operations, max_operations - before)
            done.num_drawn = stuck.num_runs
            done.seconds = time.monotonic() - began
            total.continue_with(done)
            end = min(max_operations, options.pause_after)
            if done.finding or total.num_operations >= end or time.monotonic() - began >= seconds:
                return total


def explore(
    strategy: Strategy,
    subject: Any,
    scope: Scope,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    **limits: Any,
) -> SearchResult:
    """`exhaustive.subject.explore`, where the subject lives; limits: of a search in this process.

    If the judge failed in the process of the subject, it judges the scope here, from its first state.
    """
    bounds: dict[str, Any] = {"seconds": seconds, "max_transitions": max_transitions}
    if not isinstance(subject, RemoteSubject):
        return exhaustive.explore(strategy, subject, scope, progress=progress, **bounds, **limits)
    began = time.monotonic()
    request = {"level": strategy.level.name, "scope": scope, **bounds}
    try:
        return _result(SearchResult, subject, "explore", request, _no_progress)
    except Finding as finding:
        return SearchResult(Counterexample(strategy.level.config(), [], finding))
    except Stuck as stuck:
        try:
            found = _stuck_result(strategy, subject, stuck)
        except JudgeFailed:  # a fault of kvproof shows itself again
            bounds["seconds"] = max(0.0, seconds - (time.monotonic() - began))
            return exhaustive.explore(strategy, subject, scope, progress=progress, **bounds)
        found.num_operations, found.seconds = stuck.num_runs, time.monotonic() - began
        return found


def shortest(
    strategy: Strategy, make: Callable[[], Any], found: Counterexample, *, seconds: float, **limits: Any
) -> Counterexample:
    """`shrinking.shortest`, where the subject lives.

    A run that ends or stops its process is shrunk call by call, and so is one whose search ends its process.
    """
    began, subject = time.monotonic(), make()
    if isinstance(subject, RemoteSubject) and not found.finding.cause.endswith((CRASH, HANG)):
        request = {"level": strategy.level.name, "found": found, "seconds": seconds, **limits}
        try:
            quiet_seconds = min(seconds, strategy.level.replay_seconds_max)
            length = len(found.operations)
            return _result(Counterexample, subject, "shortest", request, _no_progress, length, quiet_seconds)
        except (Stuck, Finding):
            seconds = max(0.0, seconds - (time.monotonic() - began))
    return shrinking.shortest(strategy, make, found, seconds=seconds, **limits)


def method_called(make: Callable[[], Any], found: Counterexample) -> tuple[CodePlace | None, list[CodePlace]]:
    """`oracle.method_called`, where the subject lives. Nothing is known of a call that ends or stops its process."""
    subject = make()
    if not isinstance(subject, RemoteSubject):
        return local.method_called(subject, found)
    if found.finding.cause.endswith((CRASH, HANG)):
        return None, []
    try:
        (method,), frames = _result(list, subject, "method_called", {"found": found}, _no_progress)
        return None if method is None else CodePlace(*method), [CodePlace(*frame) for frame in frames]
    except (Stuck, Finding, TypeError, ValueError):  # the subject does not repeat itself, or sent something else
        return None, []


def _no_progress(runs: int, operations: int) -> None:
    """Report nothing: the search has no one to report to."""


def _progress_after(before: int, progress: Callable[[int], None] | None) -> OnAdvance:
    """Progress callback that adds the operations of earlier attempts."""
    return lambda runs, operations: progress(before + operations) if progress else None


def _result(
    kind: type[Result],
    subject: RemoteSubject,
    search: str,
    request: dict[str, Any],
    report: OnAdvance,
    max_operations: int = 0,
    quiet_seconds: float = 0.0,
) -> Result:
    """The result of a search in a fresh fork. Raises Stuck.

    max_operations: as in `require_possible`. quiet_seconds: so long it may do no operation.
    """
    with closing(Journal()) as journal:
        try:
            fork = new_fork(subject.server, journal)
        except ServerGone as gone:
            raise Stuck(f"cannot be forked: {SERVER} {gone}", journal) from None
        try:
            answer = _answer(fork, journal, search, request, report, quiet_seconds)
        finally:
            if fork.is_alive:
                fork.end()
        if answer[0] not in ANSWERS:
            raise JudgeFailed(f"the judge failed in the process of the subject:\n{answer[-1]}", journal)
        try:
            result: Result = answered(answer, subject.server.subject)
            require_possible(result, kind, max_operations, journal.count_max)
            return result
        except Unsupported as error:
            if search == "explore":  # of the scope; a walk and a shrinker draw only what the subject supports
                raise
            raise JudgeFailed(f"it does not support what it was asked for: {error}", journal) from None
        except (ChannelError, CounterexampleError) as error:
            raise JudgeFailed(f"the process of the subject sent no possible result: {error}", journal) from None


def _answer(
    fork: Fork, journal: Journal, search: str, request: dict[str, Any], report: OnAdvance, quiet_seconds: float
) -> list[Any]:
    """What the process of a search sends at its end. Raises Stuck, also if that is no message."""
    stream = fork.connection.stream
    quiet_seconds += fork.server.limits.call_seconds * CALLS_OF_OPERATION_MAX
    with suppress(ConnectionError):  # it has ended, which reading the answer detects
        fork.connection.send(["search", search, [[key, pack(value)] for key, value in request.items()]])
    last, patience = (0, 0), Patience(quiet_seconds, fork.pid)
    while not fork.connection.is_ready(LOOK_SECONDS):
        now = journal.look()
        if now != last:
            last = now
            patience.start()
            report(*now)
        if seconds_left() <= 0:
            fork.end()
            raise Ended("was ended with its time", journal)
        if patience.left() <= 0:
            fork.end()
            raise Stuck(f"did not advance for {quiet_seconds:g} s", journal)
    stream.settimeout(quiet_seconds)
    try:
        answer: list[Any] | None = fork.connection.receive()
    except (TimeoutError, ChannelError) as error:
        fork.end()
        raise (Ended if seconds_left() <= 0 else Stuck)(f"sent what is no result ({error})", journal) from None
    if answer == ENDED and seconds_left() < GRACE_SECONDS:
        raise Ended("was ended with its time", journal)
    if answer is None or answer == ["memory"]:
        how = fork.end(has_gone=answer is None)
        raise Stuck("used more memory than its limit" if answer else how, journal)
    return answer


def require_possible(result: object, kind: type, max_operations: int = UNLIMITED, count_max: int = UNLIMITED) -> None:
    """Raise ChannelError or CounterexampleError if the result is one that no search of so many operations has.

    max_operations: of its run. count_max: of the operations, runs and states that it counts.
    """
    if not isinstance(result, kind):
        raise ChannelError(f"it is a {type(result).__name__}")
    found = result
    if isinstance(result, SearchResult):
        found = result.counterexample
        counts = (result.num_operations, result.num_runs, result.num_drawn, result.num_states, result.depth)
        if min(*counts, result.seconds) < 0 or not isfinite(result.seconds):
            raise ChannelError("its counts or its time are negative or without end")
        if max(counts) > count_max:
            raise ChannelError(f"it counts {max(counts):,} runs or operations, and no search does that in its time")
    if isinstance(found, Counterexample):
        if (length := len(found.operations)) > max_operations + BEYOND_EFFORT_MAX:
            raise ChannelError(f"its run has {length:,} operations, where {max_operations:,} were asked for")
        require_run(found.config, found.operations)
        if found.finding.property not in MEANINGS:
            raise ChannelError(f"there is no property {found.finding.property!r}")


def _stuck_result(strategy: Strategy, subject: RemoteSubject, stuck: Stuck) -> SearchResult:
    """What the run under way refutes when it is repeated call by call.

    If it refutes nothing, the result has no counterexample if the process was only slow; a process that ended has not
    repeated itself. A process that was ended with its time refutes nothing. If there is no run, the process ended when
    it made the subject, or the subject wrote over the run.

    If the judge failed there, it judges the run again in this process, where the subject cannot change it. Raises
    JudgeFailed if that refutes nothing.
    """
    if isinstance(stuck, Ended):
        return SearchResult(num_runs=stuck.num_runs)
    if isinstance(stuck, JudgeFailed):
        if stuck.run is None or (again := finding_of(subject, *stuck.run)) is None:
            raise stuck
        return SearchResult(Counterexample(*stuck.run, again), num_runs=stuck.num_runs)
    if stuck.run is None:
        config = strategy.level.config()
        text = f"the process of a search {stuck.how}, and left no run that can be repeated"
        found = finding_of(subject, config, []) or Finding("total-calls", text, f"make {CRASH}")
        return SearchResult(Counterexample(config, [], found), num_runs=stuck.num_runs)
    config, operations = stuck.run
    is_slow, finding = stuck.how.startswith("did not advance"), None
    last = operations[-1] if operations else ("open",)
    where = f"in {last[0]}{tuple(last[1:])} the process {stuck.how}"
    try:
        finding = finding_of(subject, config, operations)
        if finding is None and not is_slow:
            text = f"{where}; the same calls, done again, did not end it"
            finding = Finding("nondeterministic", text, CRASH)
    except OutOfTime:
        if not is_slow:
            finding = Finding(
                "total-calls",
                f"{where}; the time limit (--budget) was over before it could be repeated",
                f"{last[0]} {CRASH}",
            )
    example = None if finding is None else Counterexample(config, operations, finding)
    return SearchResult(example, num_runs=stuck.num_runs)
