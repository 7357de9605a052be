"""Which call made a change that a judge saw only after a later call.

A judge observes the subject after the calls that may change something. After the others, such as `step_done`, `grow` or
a question, it does not, since that would take 8 to 30 % of a hunt. So a change that one of them makes is seen after the
next call, and would be blamed on it. When a finding is reported, its run is repeated and the subject is observed after
every call. Of the calls since the judge's last observation, the first one is named that changed what the finding is
about, if it is one that may change nothing.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.comparison import what_counts
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample, WatchedSubject, applied
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Observation, Unsupported
from kvproof.spec.trace import EarlierChange

OBSERVES = ("observe", "observe_part")
QUESTIONS = (
    "can_admit",
    "can_append",
    "can_swap_out",
    "can_swap_in",
    "hits",
    "common_blocks",
    "num_records",
    "ended",
    "check",
)
STEP_DONE = "step_done"  # may change tables if the subject declares it
# Calls of managers and schedulers after which nothing that a subject shows may be different
CHANGE_NOTHING = frozenset(
    {*QUESTIONS, *(f"new{part}" for part in ("", "_elsewhere", "_encoder", "_prefix"))}
    | {"grow", "forget", "step_scheduled", STEP_DONE, "prioritize"}
)
ALL = frozenset(Observation._fields)
SHOWS = {  # what an observation must have changed in to break the property
    "failed-call-changes-nothing": ALL,
    "frame-kept": frozenset({"tables"}),
    "refcount-exact": frozenset({"refs"}),
    "lists-agree": frozenset({"free", "free_ids"}),
    "conservation": frozenset({"free", "tables"}),
    "no-leak-at-rest": frozenset({"free", "tables"}),
    "no-use-after-free": frozenset({"free_ids", "tables"}),
}


class _Done(NamedTuple):
    """A call that was done, and the fields of an observation that are different after it."""

    step: int
    call: str
    changed: frozenset[str]


class _ObservedAlways(WatchedSubject):
    """A subject that is observed after every call. since: the calls between the judge's last two observations."""

    def __init__(self, subject: Any, names: tuple[str, ...]) -> None:
        super().__init__(subject, names)
        self._before: Observation | None = None
        self._done: list[_Done] = []
        self.step, self.is_seen = 0, False
        self.since: list[_Done] = []

    def pass_on(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make the call, and observe the subject after it."""
        self.is_seen = False
        answer = call(*arguments)
        if name in OBSERVES:
            self.is_seen, self.since, self._done = True, self._done, []
        else:
            self._look(name)
        return answer

    def _look(self, call: str) -> None:
        before, self._before = self._before, None
        with suppress(Exception):  # the subject cannot be observed here; the judge does not do it either
            self._before = what_counts(self._subject.observe())
        if before is None or self._before is None:
            return
        pairs = zip(Observation._fields, before, self._before, strict=True)
        self._done.append(_Done(self.step, call, frozenset(name for name, old, new in pairs if old != new)))


def earlier_change(subject: Any, found: Counterexample) -> EarlierChange | None:
    """The call that may change nothing and made the change that the run shows later; None if there is none."""
    shown, level = SHOWS.get(found.finding.property), level_of_config(found.config)
    if shown is None or not {STEP_DONE, "schedule"} & {*level.calls.all}:  # only managers and schedulers show tables
        return None
    watched = _ObservedAlways(subject, level.calls.all)
    try:
        with time_limit_of(watched, level.replay_seconds_max) as start_time:
            enabled = applied(level.open(watched, found.config), found.config, found.operations, start_time)
            for watched.step, _ in enumerate(found.operations, start=1):
                next(enabled)
    except Finding as finding:
        if not watched.is_seen or finding.kind != found.finding.kind:
            return None
    except (Unsupported, OutOfTime):
        return None
    silent = CHANGE_NOTHING - ({STEP_DONE} if capabilities_of(subject).dedups_after_step else set())
    made = (one for one in watched.since if one.call in silent and one.changed & shown)
    first = next(made, None)
    return None if first is None else EarlierChange(first.step, first.call)
