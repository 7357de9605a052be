"""The process in which a subject is searched: ask for a search, wait for its result, and judge what became of it.

When that process ends or does not advance, the run that it was in is repeated call by call; what this refutes is the
finding. If it refutes nothing, the process was only slow.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain
from math import isfinite
from typing import Any, TypeVar

from kvproof.check.counterexample.trace_schema import CounterexampleError, require_run
from kvproof.check.hosts.channel import ChannelError
from kvproof.check.hosts.fork_client import Fork, ServerGone
from kvproof.check.hosts.time_limit import GRACE_SECONDS, OutOfTime, Patience, seconds_left
from kvproof.check.isolation.journal import Journal
from kvproof.check.isolation.messages import ENDED, pack
from kvproof.check.isolation.remote_subject import CRASH, SERVER, RemoteSubject, answered, new_fork
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.own_property import is_property
from kvproof.check.search.result import UNLIMITED, SearchResult, is_step_of_pairs
from kvproof.check.search.strategies import Strategy

ANSWERS = frozenset({"done", "unsupported", "adapter", "stand-in", "unknown"})  # of a search; the others are faults
LOOK_SECONDS = 0.1
BEYOND_EFFORT_MAX = 10_000  # operations of a run in a scope, or with which a run of a scheduler drains
CALLS_OF_OPERATION_MAX = 2  # slow ones: so many limits without an operation, and the process is taken for stuck
Result = TypeVar("Result")
OnAdvance = Callable[[int, int], None]  # called with the numbers of runs and operations


class Stuck(Exception):
    """The searching process ended or stopped.

    It holds how, the run under way, and the result of the runs before, as the journal has them. is_slow: it was ended
    because it did not advance.
    """

    def __init__(self, how: str, journal: Journal, is_slow: bool = False) -> None:
        super().__init__(how)
        self.how, self.is_slow = how, is_slow
        self.num_runs, self.num_operations = journal.look()
        self.run = journal.last_run()
        self.before: SearchResult = SearchResult()  # as if nothing was done, if the subject wrote over it
        done = journal.done_before()
        with suppress(ChannelError, CounterexampleError):
            require_possible(done, SearchResult, count_max=journal.count_max)
            self.before = replace(done, counterexample=None)


class JudgeFailed(Stuck):
    """The judge failed in the process of the subject: by a fault of kvproof, or as the subject changed that process."""


class EndedByTime(Stuck):
    """The searching process was ended, because the time of the run was over. It was not stuck."""


def result_of(
    kind: type[Result],
    subject: RemoteSubject,
    search: str,
    request: dict[str, Any],
    report: OnAdvance,
    max_operations: int = 0,
    quiet_seconds: float = 0.0,
) -> Result:
    """The result of a search in a fresh fork. Raises Stuck.

    max_operations: as in `require_possible`. quiet_seconds: so long it may do no operation, besides the time of calls.
    """
    with closing(Journal()) as journal:
        try:
            fork = new_fork(subject.server, journal)
        except ServerGone as gone:
            raise Stuck(f"cannot be forked: {SERVER} {gone}", journal) from None
        quiet_seconds += subject.server.limits.call_seconds * CALLS_OF_OPERATION_MAX
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
            raise EndedByTime("was ended with its time", journal)
        if patience.left() <= 0:
            fork.end()
            raise Stuck(f"did not advance for {quiet_seconds:g} s", journal, is_slow=True)
    stream.settimeout(quiet_seconds)
    try:
        answer: list[Any] | None = fork.connection.receive()
    except (TimeoutError, ChannelError) as error:
        fork.end()
        how, is_slow = f"sent what is no result ({error})", isinstance(error, TimeoutError)
        raise (EndedByTime if seconds_left() <= 0 else Stuck)(how, journal, is_slow) from None
    if answer == ENDED and seconds_left() < GRACE_SECONDS:
        raise EndedByTime("was ended with its time", journal)
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
        if not all(map(is_step_of_pairs, chain(*result.moved.values()))):
            raise ChannelError("the lists of a step are no pairs of blocks")
    if isinstance(found, Counterexample):
        if (length := len(found.operations)) > max_operations + BEYOND_EFFORT_MAX:
            raise ChannelError(f"its run has {length:,} operations, where {max_operations:,} were asked for")
        require_run(found.config, found.operations)
        if not is_property(found.finding.property):
            raise ChannelError(f"there is no property {found.finding.property!r}")


def despite_a_slow_process(search: Callable[[], Result]) -> Result:
    """The result of a search, which is done once more if its process did not advance. Raises Stuck."""
    try:
        return search()
    except Stuck as stuck:
        if not stuck.is_slow:
            raise
    return search()


def refuted_by_run_of(strategy: Strategy, subject: RemoteSubject, stuck: Stuck) -> SearchResult:
    """What the run under way refutes when it is repeated call by call.

    If it refutes nothing, the result has no counterexample if the process was only slow; a process that ended has not
    repeated itself. A process that was ended with its time refutes nothing. If there is no run, the process ended when
    it made the subject, or the subject wrote over the run.

    If the judge failed there, it judges the run again in this process, where the subject cannot change it. Raises
    JudgeFailed if that refutes nothing.
    """
    if isinstance(stuck, EndedByTime):
        return SearchResult(num_runs=stuck.num_runs)
    if isinstance(stuck, JudgeFailed):
        if stuck.run is None or (again := finding_of(subject, *stuck.run)) is None:
            raise stuck
        return SearchResult(Counterexample(*stuck.run, again), num_runs=stuck.num_runs)
    if stuck.run is None:
        config = strategy.level.config()
        text = f"the process of a search {stuck.how}, and left no run that can be repeated"
        found = finding_of(subject, config, [])
        if found is None and stuck.is_slow:
            return SearchResult(num_runs=stuck.num_runs)
        found = found or Finding("total-calls", text, f"make {CRASH}")
        return SearchResult(Counterexample(config, [], found), num_runs=stuck.num_runs)
    config, operations = stuck.run
    is_slow, finding = stuck.is_slow, None
    last = operations[-1] if operations else ("open",)
    where, values = f"in $asked the process {stuck.how}", {"asked": f"{last[0]}{tuple(last[1:])}"}
    try:
        finding = finding_of(subject, config, operations)
        if finding is None and not is_slow:
            text = f"{where}; the same calls, done again, did not end it"
            finding = Finding("nondeterministic", text, CRASH, values=values)
    except OutOfTime:
        if not is_slow:
            finding = Finding(
                "total-calls",
                f"{where}; the time limit (--budget) was over before it could be repeated",
                f"{last[0]} {CRASH}",
                values=values,
            )
    example = None if finding is None else Counterexample(config, operations, finding)
    return SearchResult(example, num_runs=stuck.num_runs)
