"""Searches of a subject that may live in another process: a subject in a process of its own is searched there.

If that process was only slow, nothing is lost: a walk keeps what the runs before have reached, does the whole run under
way again call by call, and goes on with the next one in a new process; another search is done again.

A search ends itself soon after its time is over: between two operations, or in a call that is interrupted. A process
that does not is ended, and what the journal has of its search is kept.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kvproof.check.hosts.time_limit import OutOfTime, seconds_left
from kvproof.check.isolation.remote_subject import CRASH, HANG, RemoteSubject
from kvproof.check.isolation.repeated_outside import found_in_scope, found_in_walk
from kvproof.check.isolation.search_process import (
    CALLS_OF_OPERATION_MAX,
    JudgeFailed,
    OnAdvance,
    Stuck,
    despite_a_slow_process,
    refuted_by_run_of,
    result_of,
)
from kvproof.check.oracle import method_called as local
from kvproof.check.oracle.method_called import Blame
from kvproof.check.oracle.plain_calls import PlainRun
from kvproof.check.oracle.plain_calls import plain_run as local_plain_run
from kvproof.check.oracle.replay import Counterexample, finding_of, is_hang
from kvproof.check.protocol.finding import Finding, FindingKey
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search import random_walk, shrinking
from kvproof.check.search.exhaustive import subject as exhaustive
from kvproof.check.search.random_walk import DEFAULT_OPTIONS, WalkOptions
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import Strategy

NUM_PROCESSES = 2  # for a search whose process does not advance, before it is done call by call


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
    """`random_walk.walk`, where the subject lives. Its result is the same if a process of the subject was only slow.

    If it finds nothing in the process of the subject, some of its runs are done again from here (`repeated_outside`).
    If the judge failed in the process of the subject, it judges the walk here, where the subject cannot change it.
    """
    if not isinstance(subject, RemoteSubject):
        ends = time.monotonic() + seconds
        limits: dict[str, Any] = {"max_operations": max_operations, "fixed": fixed, "progress": progress}

        def here() -> SearchResult:
            left = max(0.0, ends - time.monotonic())
            return random_walk.walk(strategy, subject, seed, seconds=left, options=options, **limits)

        return despite_a_late_answer(subject, here)
    remote = RemoteWalk(strategy, subject, seed, max_operations, seconds, fixed, options)
    total = remote.total
    while True:
        report = _progress_after(total.num_operations, progress)
        try:
            total.continue_with(remote.there(report))
            break
        except Finding as finding:  # of the process itself, not of a run: the subject could not be made again
            total.continue_with(SearchResult(Counterexample(strategy.level.config(), [], finding)))
            break
        except Stuck as stuck:
            if not stuck.is_slow or remote.is_late:
                total.continue_with(remote.stuck(stuck))
                break
            total.continue_with(stuck.before)
        if not remote.is_over:  # the run under way, whose hang is a finding now
            total.continue_with(remote.run_here())
        if remote.is_over:
            break
    if total.finding is None:
        total.counterexample = remote.found_outside()
    total.seconds = time.monotonic() - remote.began
    return total


@dataclass
class RemoteWalk:
    """A walk that can take several processes. total: what it has reached so far."""

    strategy: Strategy
    subject: RemoteSubject
    seed: int
    max_operations: int
    seconds: float
    fixed: dict[str, Any] | None
    options: WalkOptions
    total: SearchResult = field(default_factory=SearchResult)
    began: float = field(default_factory=time.monotonic)

    @property
    def is_late(self) -> bool:
        """Whether the time of the walk is over."""
        return time.monotonic() - self.began >= self.seconds or seconds_left() <= 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of the walk."""
        end = min(self.max_operations, self.options.pause_after)
        is_ended = self.total.finding is not None or self.total.is_unsupported or self.total.num_operations >= end
        return is_ended or self.is_late

    def there(self, report: OnAdvance) -> SearchResult:
        """What is left, in a new process of the subject. Raises Stuck, and Finding if there cannot be one."""
        left = self._options()
        options = {name: getattr(left, name) for name in ("first_run", "known", "pause_after", "runs_before")}
        options["disabled"] = sorted(left.disabled)
        request = {"level": self.strategy.level.name, "seed": self.seed, "options": options, **self._limits()}
        return result_of(SearchResult, self.subject, "walk", request, report, request["max_operations"])

    def here(self) -> SearchResult:
        """What is left, judged in this process, call by call."""
        return self._walked(self._options())

    def run_here(self) -> SearchResult:
        """The next run, judged in this process, call by call."""
        return self._walked(replace(self._options(), pause_after=1))

    def found_outside(self) -> Counterexample | None:
        """What a sample of the runs refutes when they are done again from this process; None without time for it."""
        if self.is_late:
            return None
        limits = {"seconds": self._limits()["seconds"], "fixed": self.fixed}

        def search() -> SearchResult:
            options = replace(self.options, begin=DEFAULT_OPTIONS.begin, keep=DEFAULT_OPTIONS.keep)
            return SearchResult(found_in_walk(self.strategy, self.subject, self.seed, self.total, options, **limits))

        with as_patient_as_a_search(self.subject):
            return despite_a_late_answer(self.subject, search).counterexample

    def _walked(self, options: WalkOptions) -> SearchResult:
        return despite_a_late_answer(
            self.subject,
            lambda: random_walk.walk(self.strategy, self.subject, self.seed, options=options, **self._limits()),
        )

    def stuck(self, stuck: Stuck) -> SearchResult:
        """What a process that ended, or did not advance when time was over, has reached with the run under way.

        If the judge failed, the same runs are judged again here; a fault of kvproof shows itself again.
        """
        try:
            done = refuted_by_run_of(self.strategy, self.subject, stuck)
        except JudgeFailed:
            return self.here()
        if done.finding is not None or stuck.is_slow:
            done = replace(stuck.before, counterexample=done.counterexample, num_runs=done.num_runs)
        done.num_operations = min(stuck.num_operations, self.max_operations - self.total.num_operations)
        done.num_drawn = stuck.num_runs
        return done

    def _options(self) -> WalkOptions:
        return replace(
            self.options,
            first_run=self.options.first_run + self.total.num_drawn,
            pause_after=self.options.pause_after - self.total.num_operations,
            runs_before=self.options.runs_before + self.total.num_runs,
        )

    def _limits(self) -> dict[str, Any]:
        left = max(0.0, self.seconds - (time.monotonic() - self.began))
        return {"max_operations": self.max_operations - self.total.num_operations, "seconds": left, "fixed": self.fixed}


def explore(
    strategy: Strategy,
    subject: Any,
    scope: Scope,
    *,
    seconds: float,
    max_transitions: int = UNLIMITED,
    progress: Callable[[int], None] | None = None,
    past: tuple[FindingKey, ...] = (),
    **limits: Any,
) -> SearchResult:
    """`exhaustive.subject.explore`, where the subject lives; limits: of a search in this process.

    If the judge failed in the process of the subject, or a second process did not advance, it judges the scope here,
    from its first state. So it does to go past a call that ends or stops the process: each run has a process here.
    """
    bounds: dict[str, Any] = {"seconds": seconds, "max_transitions": max_transitions, "past": past}
    ends_process = any(mechanism.partition(":")[0].endswith((CRASH, HANG)) for _, mechanism in past)
    if ends_process or not isinstance(subject, RemoteSubject):
        return exhaustive.explore(strategy, subject, scope, progress=progress, **bounds, **limits)
    began = time.monotonic()
    for _ in range(NUM_PROCESSES):
        request = {"level": strategy.level.name, "scope": scope, **bounds}
        try:
            done = result_of(SearchResult, subject, "explore", request, _no_progress)
            return _with_paths_from_here(strategy, subject, scope, done, past)
        except Finding as finding:
            return SearchResult(Counterexample(strategy.level.config(), [], finding))
        except Stuck as stuck:
            try:
                found = refuted_by_run_of(strategy, subject, stuck)
            except JudgeFailed:  # a fault of kvproof shows itself again
                bounds["seconds"] = max(0.0, seconds - (time.monotonic() - began))
                break
            bounds["seconds"] = max(0.0, seconds - (time.monotonic() - began))
            if found.finding is not None or not stuck.is_slow or not bounds["seconds"]:
                found.num_operations, found.seconds = stuck.num_runs, time.monotonic() - began
                return found
    return exhaustive.explore(strategy, subject, scope, progress=progress, **bounds)


def _with_paths_from_here(
    strategy: Strategy, subject: RemoteSubject, scope: Scope, done: SearchResult, past: tuple[FindingKey, ...]
) -> SearchResult:
    """The result of a search in the process of the subject, with what paths in the scope refute from this process."""
    if done.finding is None and seconds_left() > 0:
        paths = partial(found_in_scope, strategy, subject, scope, done, past)
        with as_patient_as_a_search(subject):
            done.counterexample = despite_a_late_answer(subject, lambda: SearchResult(paths())).counterexample
        done.is_exhausted = done.is_exhausted and done.counterexample is None
    return done


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
            return despite_a_slow_process(
                lambda: result_of(Counterexample, subject, "shortest", request, _no_progress, length, quiet_seconds)
            )
        except (Stuck, Finding):
            seconds = max(0.0, seconds - (time.monotonic() - began))
    return shrinking.shortest(strategy, make, found, seconds=seconds, **limits)


def method_called(make: Callable[[], Any], found: Counterexample) -> Blame:
    """`oracle.method_called`, where the subject lives. Nothing is known of a call that ends its process."""
    subject = make()
    if not isinstance(subject, RemoteSubject):
        return local.method_called(subject, found)
    if found.finding.cause.endswith((CRASH, HANG)):
        return local.stood_in(found.finding)
    request = {"found": found}
    try:
        return despite_a_slow_process(lambda: result_of(Blame, subject, "method_called", request, _no_progress))
    except (Stuck, Finding):  # the subject does not repeat itself, or sent something else
        return Blame()


def plain_run(make: Callable[[], Any], found: Counterexample) -> PlainRun:
    """`oracle.plain_calls.plain_run`, where the subject lives."""
    subject = make()
    if not isinstance(subject, RemoteSubject):
        return local_plain_run(subject, found)
    request = {"found": found}
    try:
        return despite_a_slow_process(lambda: result_of(PlainRun, subject, "plain_run", request, _no_progress))
    except (Stuck, Finding) as error:
        return PlainRun(missing=[f"the process of the manager did not end the run ({error})"])


def despite_a_late_answer(subject: Any, search: Callable[[], SearchResult]) -> SearchResult:
    """The result of a search that is done call by call.

    It is done once more if it ended at a call that gave no answer in time, and that gives one when the run is repeated:
    the process of the subject stood still.
    """
    done = search()
    found = done.counterexample
    if found is None or not is_hang(found.finding) or not getattr(subject, "limits_its_calls", False):
        return done
    try:
        again = finding_of(subject, found.config, found.operations)
    except OutOfTime:
        return done
    return search() if again is None else done


@contextmanager
def as_patient_as_a_search(subject: RemoteSubject) -> Iterator[None]:
    """Within the block, a call may take as long as a search in the process of the subject waits for an operation.

    So what is done again is not refuted for a call that was only slow in the search.
    """
    limits = subject.server.limits
    subject.server.limits = replace(limits, call_seconds=limits.call_seconds * CALLS_OF_OPERATION_MAX)
    try:
        yield
    finally:
        subject.server.limits = limits


def _no_progress(runs: int, operations: int) -> None:
    """Report nothing: the search has no one to report to."""


def _progress_after(before: int, progress: Callable[[int], None] | None) -> OnAdvance:
    """Progress callback that adds the operations of earlier attempts."""
    return lambda runs, operations: progress(before + operations) if progress else None
