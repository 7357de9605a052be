"""Walks and explorations, wherever the subject lives: a subject in a process of its own is searched there.

When that process ends, or does not advance, the run it was in is done again call by call; what that refutes is the
finding. If it refutes nothing, the process was only slow, and the search goes on with the next run.
"""

import time
from collections.abc import Callable
from typing import Any, cast

from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import pack
from kvproof.check.isolation.remote_subject import CRASH, HANG, RemoteSubject, answered, new_fork
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search import manager_operations
from kvproof.check.search import pool_operations as pool_walker
from kvproof.check.search import scheduler_operations as loop_walker
from kvproof.check.search.exhaustive import manager as manager_explorer
from kvproof.check.search.exhaustive import pool as pool_explorer
from kvproof.check.search.exhaustive.runs import SubjectExploration
from kvproof.check.search.random_walk import DEFAULT_OPTIONS, Walk, WalkOptions
from kvproof.check.search.shrinking import pool as pool_minimiser
from kvproof.check.search.shrinking import scheduler as loop_minimiser
from kvproof.check.search.shrinking import shorter_runs
from kvproof.spec.trace import Operation

LOOK_SECONDS = 0.1
CALLS_OF_OPERATION_MAX = 2  # slow ones: so many limits without an operation, and the process is taken for stuck
Progress = Callable[[int, int], None]  # told of runs and operations
Shorter = tuple[Config, list[Operation], Finding]


class Stuck(Exception):
    """The searching process ended or stopped; where it was."""

    def __init__(self, how: str, journal: Journal) -> None:
        super().__init__(how)
        self.how = how
        self.num_runs, self.num_operations = journal.look()
        self.run = journal.last_run()


def walk(subject: Any, seed: int, *, options: WalkOptions = DEFAULT_OPTIONS, **limits: Any) -> Walk:
    """`walker.walk`, where the subject lives."""
    if isinstance(subject, RemoteSubject):
        return _walk(subject, "walk", seed, options, **limits)
    return manager_operations.walk(subject, seed, options=options, **limits)


def walk_loop(subject: Any, seed: int, *, options: WalkOptions = DEFAULT_OPTIONS, **limits: Any) -> Walk:
    """`walker.walk_loop`, where the subject lives."""
    if isinstance(subject, RemoteSubject):
        return _walk(subject, "walk_loop", seed, options, **limits)
    return loop_walker.walk_loop(subject, seed, options=options, **limits)


def walk_pool(subject: Any, seed: int, *, options: WalkOptions = DEFAULT_OPTIONS, **limits: Any) -> Walk:
    """`pool.walk_pool`, where the subject lives."""
    if isinstance(subject, RemoteSubject):
        return _walk(subject, "walk_pool", seed, options, **limits)
    return pool_walker.walk_pool(subject, seed, options=options, **limits)


def explore_subject(
    subject: Any, scope: Scope, *, seconds: float, progress: Callable[[int], None] | None = None, **limits: Any
) -> SubjectExploration:
    """`explorer_subject.explore_subject`, where the subject lives; limits: of a search in this process."""
    if isinstance(subject, RemoteSubject):
        return _explore(subject, "explore", scope, scope.config, seconds)
    return manager_explorer.explore_subject(subject, scope, seconds=seconds, progress=progress, **limits)


def explore_pool(
    subject: Any, scope: Scope, *, seconds: float, progress: Callable[[int], None] | None = None
) -> SubjectExploration:
    """`pool.explore_pool`, where the subject lives."""
    if isinstance(subject, RemoteSubject):
        return _explore(subject, "explore_pool", scope, pool_explorer.config_of(scope), seconds)
    return pool_explorer.explore_pool(subject, scope, seconds=seconds, progress=progress)


def _explore(subject: RemoteSubject, search: str, scope: Scope, config: Config, seconds: float) -> SubjectExploration:
    began = time.monotonic()
    try:
        return cast(SubjectExploration, _searched(subject, search, {"scope": scope, "seconds": seconds}, _nothing))
    except Stuck as stuck:
        found = SubjectExploration(scope, config)
        found.finding = _found_again(subject, stuck)
        if stuck.run:
            found.config, found.operations = stuck.run
        found.transitions, found.seconds = stuck.num_runs, time.monotonic() - began
        return found


def shortest(make: Callable[[], Any], finding: Finding, *, seconds: float, **named: Any) -> Shorter:
    """`shortening.shortest`, where the subject lives."""
    return _shorter(shorter_runs.shortest, make, finding, seconds, named)


def minimise_loop(make: Callable[[], Any], finding: Finding, *, seconds: float, **named: Any) -> Shorter:
    """`loop.minimise_loop`, where the subject lives."""
    return _shorter(loop_minimiser.minimise_loop, make, finding, seconds, named)


def minimise_pool(make: Callable[[], Any], finding: Finding, *, seconds: float, **named: Any) -> Shorter:
    """`pool.minimise_pool`, where the subject lives."""
    return _shorter(pool_minimiser.minimise_pool, make, finding, seconds, named)


def _shorter(
    function: Callable[..., Any], make: Callable[[], Any], finding: Finding, seconds: float, named: dict[str, Any]
) -> Shorter:
    """A shorter run. One that ends or stops its process is sought call by call, and so is one that fails otherwise."""
    began, subject = time.monotonic(), make()
    asked = {**named, "finding": finding, "seconds": seconds}
    if isinstance(subject, RemoteSubject) and not finding.cause.endswith((CRASH, HANG)):
        try:
            return cast(Shorter, _searched(subject, function.__name__, asked, _nothing, seconds))
        except Stuck:
            asked["seconds"] = max(0.0, seconds - (time.monotonic() - began))
    return cast(Shorter, function(make, **asked))


def _nothing(runs: int, operations: int) -> None:
    """Nobody is told how far it is."""


def _walk(
    subject: RemoteSubject,
    search: str,
    seed: int,
    options: WalkOptions,
    *,
    max_operations: int,
    seconds: float,
    fixed: dict[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Walk:
    """A walk that goes on after a process that was only slow."""
    total, began = Walk(), time.monotonic()
    while True:
        left = max(0.0, seconds - (time.monotonic() - began))
        before = total.num_operations
        asked = {
            "seed": seed,
            "options": {"first_run": options.first_run + total.num_drawn, "told": options.told},
            "max_operations": max_operations - before,
            "seconds": left,
            "fixed": fixed,
        }
        try:
            done = _searched(subject, search, asked, _after(before, progress))
        except Stuck as stuck:
            done = Walk(num_operations=stuck.num_operations, num_runs=stuck.num_runs, num_drawn=stuck.num_runs)
            done.finding = _found_again(subject, stuck)
            if stuck.run:
                done.config, done.operations = stuck.run
            done.seconds = time.monotonic() - began
            total.add(done)
            if done.finding or total.num_operations >= max_operations or time.monotonic() - began >= seconds:
                return total
        else:
            total.add(done)
            return total


def _after(before: int, progress: Callable[[int], None] | None) -> Progress:
    """Who is told of runs and operations: the progress of a walk that had done some before."""
    return lambda runs, operations: progress(before + operations) if progress else None


def _searched(
    subject: RemoteSubject, search: str, named: dict[str, Any], look: Progress, quiet_seconds: float = 0.0
) -> Any:
    """The result of a search in a fresh fork, which may note nothing for so many seconds. Raises Stuck."""
    journal = Journal()
    fork = new_fork(subject.server, journal)
    try:
        stream = fork.connection.stream
        patience = quiet_seconds + subject.server.limits.call_seconds * CALLS_OF_OPERATION_MAX
        fork.connection.send(["search", search, [[key, pack(value)] for key, value in named.items()]])
        seen, advanced = (0, 0), time.monotonic()
        while not fork.connection.is_ready(LOOK_SECONDS):
            now = journal.look()
            if now != seen:
                seen, advanced = now, time.monotonic()
                look(*now)
            elif time.monotonic() - advanced > patience:
                fork.end()
                raise Stuck(f"did not advance for {patience:g} s", journal)
        stream.settimeout(patience)
        said = fork.connection.receive()
        if said is None or said == ["memory"]:
            how = fork.end(has_gone=said is None)
            raise Stuck("used more memory than its limit" if said else how, journal)
        return answered(said)
    finally:
        if fork.is_alive:
            fork.end()
        journal.close()


def _found_again(subject: RemoteSubject, stuck: Stuck) -> Finding | None:
    """What the run refutes when it is done call by call; None if nothing, and the process had not ended either."""
    if stuck.run is None:
        raise AssertionError(f"the process of the search {stuck.how}, and no run was begun")
    config, operations = stuck.run
    found = finding_of(subject, config, operations)
    if found is None and not stuck.how.startswith("did not advance"):
        last = operations[-1] if operations else ("open",)
        found = Finding(
            "nondeterministic",
            f"in {last[0]}{tuple(last[1:])} the process {stuck.how}; the same calls, done again, did not end it",
            CRASH,
        )
    return found
