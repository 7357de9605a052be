"""What the runs of a history say together: findings over time, flaky ones, speeds and their regressions.

**Findings.** A finding is the same in two runs if the first covers the second (`identity`). Its state is one of these:

- *open*: the last run that judged its property found it;
- *fixed*: it was found, and a later complete run with the same command, seed and effort judged its property and did
  not find it;
- *not found since*: later runs judged its property and did not find it, but none with the same seed and effort;
- *flaky*: some complete runs with the same code, command, seed and effort found it and others did not; or, over several
  commits or releases with the same command, seed and effort, it was found, then not found, then found again.

A run that did not find it says nothing of it if it met another finding that may hide it, and which no run with this
finding has.

The code is the same if the release of the subject and the version of kvproof are; for a subject without a release, if
the commit of the working folder is known, has no changes, and is the same.

**Speeds.** See `speed_history`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvproof.reports.identity import Identity
from kvproof.reports.recorded_run import RecordedRun
from kvproof.reports.result import Check
from kvproof.reports.speed_history import RunSpeed, move_speeds, search_speeds
from kvproof.spec.text.properties import NOTES

OPEN, FIXED, GONE, FLAKY = "open", "fixed", "not found since", "flaky"
DIRTY = "-dirty"


@dataclass
class FindingHistory:
    """One finding over the runs of a subject.

    num_seen: runs that found it. num_judged: runs that found it or judged its property. why: for a flaky finding, what
    makes it one.
    """

    finding: Check
    first: RecordedRun
    last: RecordedRun
    num_seen: int
    num_judged: int
    state: str
    why: str = ""

    @property
    def title(self) -> str:
        """The property and the signature, or what the finding says if it has no signature."""
        text = self.finding.signature or (self.finding.text.splitlines() or [""])[0]
        return f"{self.finding.property}: {text}" if text else self.finding.property


@dataclass
class SubjectHistory:
    """The runs of one subject, oldest first, of all its releases.

    speeds: of searches, by the id of the run. moves: of data planes.
    """

    name: str
    runs: list[RecordedRun]
    findings: list[FindingHistory] = field(default_factory=list)
    speeds: dict[str, RunSpeed] = field(default_factory=dict)
    moves: list[RunSpeed] = field(default_factory=list)

    @property
    def slow(self) -> list[RunSpeed]:
        return [speed for speed in (*self.speeds.values(), *self.moves) if speed.is_slow]

    @property
    def slow_runs(self) -> set[str]:
        """The ids of the runs with a speed that is slower than usual."""
        return {speed.run.id for speed in self.slow}

    @property
    def flaky(self) -> list[FindingHistory]:
        return [one for one in self.findings if one.state == FLAKY]


def histories(runs: Iterable[RecordedRun]) -> list[SubjectHistory]:
    """The history of each subject, in the order of their first runs. The runs are given oldest first."""
    by_name: dict[str, list[RecordedRun]] = {}
    for run in runs:
        by_name.setdefault(run.name, []).append(run)
    return [
        SubjectHistory(name, mine, _findings(mine), search_speeds(mine), move_speeds(mine))
        for name, mine in by_name.items()
    ]


def _findings(runs: Sequence[RecordedRun]) -> list[FindingHistory]:
    found: dict[Identity, Check] = {}
    for run in runs:
        for one in run.findings:
            if one.property not in NOTES:
                known = (key for key in found if one.identity.is_covered_by(key))
                found[next(known, one.identity)] = one
    histories = [_history(identity, finding, runs) for identity, finding in found.items()]
    order = {FLAKY: 0, OPEN: 1, GONE: 2, FIXED: 3}
    return sorted(histories, key=lambda one: (order[one.state], one.last.started))


def _history(identity: Identity, finding: Check, runs: Sequence[RecordedRun]) -> FindingHistory:
    seen = [run for run in runs if run.has(identity)]
    judged = [run for run in runs if run.has(identity) or _has_looked(run, identity, seen)]
    state, why = FLAKY, _flaky(identity, judged)
    if not why:
        last = seen[-1]
        later = [run for run in judged[judged.index(last) + 1 :] if run.is_complete]
        same = {_inputs(run) for run in seen}
        state = OPEN if not later else FIXED if any(_inputs(run) in same for run in later) else GONE
    return FindingHistory(finding, seen[0], seen[-1], len(seen), len(judged), state, why)


def _has_looked(run: RecordedRun, identity: Identity, seen: Sequence[RecordedRun]) -> bool:
    """Whether a run that did not find it could have. seen: the runs that found it."""
    others = [one.identity for one in run.findings if one.property not in NOTES]
    new = [one for one in others if not any(earlier.has(one) for earlier in seen)]
    return run.is_complete and identity.property in run.judged and not identity.may_be_hidden_by(new)


def _inputs(run: RecordedRun) -> tuple[str, int, str]:
    """What a user chooses for a run; the effort is empty if only the budget limited it."""
    return run.command, run.seed, run.effort


def _code(run: RecordedRun) -> str:
    """What names the code of the subject; empty if nothing does."""
    return run.release or ("" if run.revision.endswith(DIRTY) else run.revision)


def _flaky(identity: Identity, judged: Sequence[RecordedRun]) -> str:
    """Why a finding is flaky; empty if it is not. judged: the runs that judged it, oldest first."""
    complete = [run for run in judged if run.is_complete and run.effort]
    groups: dict[tuple[str, str, str, int, str], list[bool]] = {}
    orders: dict[tuple[str, int, str], list[bool]] = {}
    for run in complete:
        is_seen = run.has(identity)
        if code := _code(run):
            groups.setdefault((code, run.version, *_inputs(run)), []).append(is_seen)
        orders.setdefault(_inputs(run), []).append(is_seen)
    for (code, _, command, seed, effort), seen in groups.items():
        if 0 < sum(seen) < len(seen):
            return (
                f"{sum(seen)} of {len(seen)} runs of {command} with seed {seed}, effort {effort} found it, all with "
                f"the same code ({code[:12]})"
            )
    for (command, seed, effort), seen in orders.items():
        first = seen.index(True) if True in seen else len(seen)
        gone = seen.index(False, first) if False in seen[first:] else len(seen)
        if True in seen[gone:]:
            return f"runs of {command} with seed {seed}, effort {effort} found it, then did not, then found it again"
    return ""
