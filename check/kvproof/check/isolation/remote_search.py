"""Searches of a subject that may live in another process: a subject in a process of its own is searched there.

If that process was only slow, the search continues with the next run. A search ends itself soon after its time is over:
between two operations, or in a call that is interrupted. A process that does not is ended, and what the journal has of
its search is kept.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvproof.check.isolation.remote_subject import CRASH, HANG, RemoteSubject
from kvproof.check.isolation.search_process import JudgeFailed, OnAdvance, Stuck, refuted_by_run_of, result_of
from kvproof.check.oracle import method_called as local
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search import random_walk, shrinking
from kvproof.check.search.exhaustive import subject as exhaustive
from kvproof.check.search.random_walk import DEFAULT_OPTIONS, WalkOptions
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import Strategy
from kvproof.spec.trace import CodePlace


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
            total.continue_with(result_of(SearchResult, subject, "walk", request, report, max_operations - before))
            return total
        except Finding as finding:  # of the process itself, not of a run: the subject could not be made again
            total.continue_with(SearchResult(Counterexample(strategy.level.config(), [], finding)))
            return total
        except Stuck as stuck:
            try:
                done = refuted_by_run_of(strategy, subject, stuck)
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
        return result_of(SearchResult, subject, "explore", request, _no_progress)
    except Finding as finding:
        return SearchResult(Counterexample(strategy.level.config(), [], finding))
    except Stuck as stuck:
        try:
            found = refuted_by_run_of(strategy, subject, stuck)
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
            return result_of(Counterexample, subject, "shortest", request, _no_progress, length, quiet_seconds)
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
        (method,), frames = result_of(list, subject, "method_called", {"found": found}, _no_progress)
        return None if method is None else CodePlace(*method), [CodePlace(*frame) for frame in frames]
    except (Stuck, Finding, TypeError, ValueError):  # the subject does not repeat itself, or sent something else
        return None, []


def _no_progress(runs: int, operations: int) -> None:
    """Report nothing: the search has no one to report to."""


def _progress_after(before: int, progress: Callable[[int], None] | None) -> OnAdvance:
    """Progress callback that adds the operations of earlier attempts."""
    return lambda runs, operations: progress(before + operations) if progress else None
