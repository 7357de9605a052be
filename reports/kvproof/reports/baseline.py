"""Compare a result with an earlier one, the baseline: a gate that may only get better.

Worse are: a finding that the baseline does not have (findings are the same if they refute the same property in the same
way), a weaker verdict of a check, a check that the subject no longer supports, a rule, witness or kind of operation
that is no longer reached, less effort, and less work than an effort of the baseline did. A finding of the baseline
that is gone is better, if its property was judged again. It is fixed only if no new finding may hide it, since runs
that use the features of the new one mostly end there, and if the run did what the one of the baseline did: with the
same command, seed and effort, and nothing less was judged or reached. Else it was not found again, which says less.

Only results of one subject are compared; its releases may differ. With another seed, effort or version of kvproof, a
run may miss what is rare. Then only what the baseline reached often must be reached. Another command has other judges
and scopes, so only the findings of its results are compared.

`kvproof compare A B` shows what is worse and better with A as a baseline of B; in addition, the verdicts that became
stronger, what is reached for the first time, and the speeds. The exit code is that of a gate: 6 if anything is worse,
else 0. The speed of one run says little, as it
has noise; so operations per second are shown and decide nothing. The speeds of data planes have their noise with them
and decide, as `kvproof device --baseline` does; one that is no longer measured is worse.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from kvproof.reports.device_baseline import compared, host_change, untimed
from kvproof.reports.device_baseline import difference as why_not
from kvproof.reports.document import DocumentError, read
from kvproof.reports.identity import Identity
from kvproof.reports.recorded_run import STEPS
from kvproof.reports.result import Check, Difference, Result, Run, operations_of
from kvproof.reports.summary import judges, properties, weakest_verdict, work
from kvproof.spec.verdict import Exit, Verdict

STRENGTH = {Verdict.PROVED: 4, Verdict.EXHAUSTED: 3, Verdict.NOT_REFUTED: 2, Verdict.UNKNOWN: 1, Verdict.UNSUPPORTED: 0}
OFTEN = 20  # a rule or witness that was reached so often is expected with every seed
RUNS = "runs"  # more of them are not more work, because they may be shorter
LESS_WORK = 0.9  # of the baseline's: a changed subject may have somewhat fewer states
ACCEPTED = "in the baseline"  # the excuse of a finding that the baseline has

Place = tuple[str, str]  # the judge and the property


@dataclass(frozen=True)
class BaselineComparison:
    """Compares a finished run with a baseline. name: of its file."""

    name: str
    before: Result

    def __call__(self, now: Result) -> Difference:
        excuse_witnesses(self.before, now)
        now.messages += what_differs(self.name, self.before.run, now.run)
        return difference(self.name, self.before, now)


def read_baseline(path: Path, subject: str | None = None) -> Result:
    """The baseline in a file. subject: of the result that is compared with it, if there is one.

    Raises DocumentError if it is no result, or that of a run that did not finish, or that of another subject.
    """
    result = read(path, Result)
    if not result.run.is_complete:
        raise DocumentError(f"{path} is the result of a run that did not finish; it cannot be a baseline")
    if subject is not None and not is_same_subject(result.run.subject, subject):
        raise DocumentError(
            f"{path} is a baseline of {result.run.subject}, and this result is of {subject}: results of different "
            "subjects are not compared; name another baseline file"
        )
    return result


def is_same_subject(one: str, other: str) -> bool:
    """Whether two names mean the same subject.

    Its releases may differ (`vllm-v0==0.6.3`, `vllm-v0==0.7.0`), and so may the folder from which its file is named.
    """
    (path, _, factory), (other_path, _, other_factory) = one.rpartition(":"), other.rpartition(":")
    if path.endswith(".py") and other_path.endswith(".py"):
        short, long = sorted((_steps(path), _steps(other_path)), key=len)
        return factory == other_factory and long[len(long) - len(short) :] == short
    return one.partition("==")[0] == other.partition("==")[0]


def _steps(path: str) -> list[str]:
    return [step for step in PurePath(path).parts if step != ".."]


def accepted(result: Result) -> Result:
    """The part of a result that a later run is compared with: without times, and without facts of the machine."""
    run = result.run
    kept = Run(run.version, run.command, run.subject, run.seed, is_complete=True)
    kept.effort, kept.budget_seconds = run.effort, run.budget_seconds
    checks = [replace(check, seconds=0.0, trace=None) for check in result.checks]
    baseline = Result(kept, checks, result.witnesses)
    baseline.count_totals()
    return baseline


def findings(result: Result) -> dict[Identity, Check]:
    """The refutations of a result, excused or not, by what makes them the same."""
    return {check.identity: check for check in result.checks if check.verdict is Verdict.REFUTED}


def is_known(finding: Identity, known: Iterable[Identity]) -> bool:
    """Whether one of the known findings is this one. Either may be of an older kvproof."""
    return any(
        finding.is_covered_by(one)
        or (not finding.former and one.former and (one.property, one.former) == (finding.property, finding.signature))
        for one in known
    )


def difference(name: str, before: Result, now: Result) -> Difference:
    """What is worse and what is better in a result than in the baseline of this name."""
    worse, better = [*_new_findings(before, now)], []
    judged = {(check.judge, check.property) for check in now.checks if check.verdict is not Verdict.UNSUPPORTED}
    decided = _refuted(now) | {place for place, verdict in _weakest(now).items() if verdict is not Verdict.UNKNOWN}
    is_same_command = before.run.command == now.run.command
    lost = [*_lost(before, now)] if is_same_command else []
    is_as_before = _draws_the_same(before, now) and not lost
    new = [one for one in findings(now) if not is_known(one, findings(before))]
    for place, known, text in _gone(before, now):
        if place not in judged:
            worse += [f"no longer judged: {text}"] if is_same_command else []
        elif known.may_be_hidden_by(new):
            better.append(f"not found, and perhaps hidden by a new finding: {text}")
        elif place not in decided:
            better.append(f"not found, and not decided: {text}")
        else:
            better.append(f"{'fixed' if is_as_before else 'not found again'}: {text}")
    return Difference(name, worse + lost, better, has_findings=True)


def _lost(before: Result, now: Result) -> Iterator[str]:
    """What is judged or reached less than in the baseline, of the same command."""
    yield from _weaker(before, now)
    yield from _unreached(before, now)
    yield from _less_effort(before, now)
    yield from _less_work(before, now)


def what_differs(name: str, before: Run, now: Run) -> Iterator[str]:
    """A sentence about the other conditions of the run that is the baseline, if they differ."""
    if (other := _conditions(before)) != (own := _conditions(now)):
        named = [word for word in other if other[word] != own[word]]
        text = ", ".join(f"{word} {other[word]} there and {own[word]} here" for word in named)
        left = f"only what the baseline reached {OFTEN} times or more must be reached again"
        if before.command != now.command:
            left = "only findings are compared, since the commands have different judges"
        yield f"{name} is the result of another run ({text}); {left}"


def _conditions(run: Run) -> dict[str, str]:
    """What decides which runs are searched, in addition to the subject itself."""
    budget = "none" if run.budget_seconds is None else f"{run.budget_seconds:g} s"
    named = {"kvproof": run.version, "command": run.command, "subject": run.subject, "seed": str(run.seed)}
    return {**named, "effort": run.effort or "none", "budget": budget}


def _gone(before: Result, now: Result) -> Iterator[tuple[Place, Identity, str]]:
    """The findings of the baseline that the result does not have: judge and property, identity, and what they are."""
    found = findings(now)
    for known, check in findings(before).items():
        if not any(is_known(one, [known]) for one in found):
            yield (check.judge, known.property), known, f"{known.property}: {_mechanism(check)}"


def excuse_witnesses(before: Result, now: Result) -> None:
    """Expect no witness that the baseline did not reach either, if the run has findings of the baseline.

    Most runs avoid what is already found, and with it what leads to it.
    """
    if any(check.excused == ACCEPTED for check in now.checks):
        missing = {(witness.judge, witness.name) for witness in before.unmet_witnesses()}
        now.witnesses = [
            replace(witness, is_expected=witness.is_expected and (witness.judge, witness.name) not in missing)
            for witness in now.witnesses
        ]


def _new_findings(before: Result, now: Result) -> Iterator[str]:
    """The failures that the baseline does not have. A finding that another baseline excuses is new to this one."""
    known = findings(before)
    for found, check in findings(now).items():
        if not is_known(found, known) and (check.is_failure or check.excused == ACCEPTED):
            yield f"new finding: {check.id}: {_mechanism(check)}"


def _mechanism(check: Check) -> str:
    """How a finding broke its property, or what it says if it has no signature."""
    return check.signature or next(iter(check.text.splitlines()), "without a text")


def _weaker(before: Result, now: Result) -> Iterator[str]:
    """The properties of each judge whose weakest verdict is weaker, and the judges that did not run.

    A scope that the subject does not have is a loss only if the baseline came to it: it may have ended before.
    """
    there = {check.id for check in before.checks}
    known = [one for one in now.checks if one.verdict is not Verdict.UNSUPPORTED or one.id in there]
    old, new = _weakest(before), _weakest(replace(now, checks=known))
    judges, refuted = {check.judge for check in now.checks}, _refuted(now) | _noted(now)
    yield from (f"no longer run: {judge}" for judge in dict.fromkeys(judge for judge, _ in old) if judge not in judges)
    lost: dict[tuple[str, Verdict, str], list[str]] = {}
    for (judge, name), was in old.items():
        found = new.get((judge, name), Verdict.UNSUPPORTED)
        is_weaker = STRENGTH[found] < STRENGTH[was] and was is not Verdict.UNKNOWN  # an open check can lose nothing
        if judge in judges and (judge, name) not in refuted and is_weaker:
            lost.setdefault((judge, was, found.value), []).append(name)
    for (judge, was, word), names in lost.items():
        yield f"weaker: {judge}: {', '.join(names)}: {was.value} in the baseline, now {word}"


def _weakest(result: Result) -> dict[Place, Verdict]:
    """The weakest verdict on each property of each judge, but for refutations, which are compared apart, and notes."""
    found: dict[Place, Verdict] = {}
    refuted = _refuted(result) | _noted(result)
    for check in result.checks:
        if check.verdict in STRENGTH:
            key = check.judge, check.property
            found[key] = min(check.verdict, found.get(key, check.verdict), key=STRENGTH.__getitem__)
    return {key: verdict for key, verdict in found.items() if key not in refuted}


def _refuted(result: Result) -> set[Place]:
    return {(check.judge, check.property) for check in result.checks if check.verdict is Verdict.REFUTED}


def _noted(result: Result) -> set[Place]:
    return {(check.judge, check.property) for check in result.checks if check.note}


def _unreached(before: Result, now: Result) -> Iterator[str]:
    judges = {witness.judge for witness in now.witnesses} - _failing(now)
    reached = {(witness.judge, witness.name) for witness in now.witnesses if witness.count}
    least = 1 if _is_same_run(before, now) else OFTEN
    for judge in dict.fromkeys(witness.judge for witness in before.witnesses):
        lost = [
            witness.name
            for witness in before.witnesses
            if witness.judge == judge and witness.count >= least and (judge, witness.name) not in reached
        ]
        if lost and judge in judges:
            yield f"no longer reached: {judge}: {', '.join(lost)}"


def _is_same_run(before: Result, now: Result) -> bool:
    return before.run.subject == now.run.subject and _draws_the_same(before, now)


def _draws_the_same(before: Result, now: Result) -> bool:
    """Whether the runs draw the same for two releases of a subject that answer the same."""
    of_one_subject = replace(before.run, subject=now.run.subject)
    return _conditions(of_one_subject) == _conditions(now.run) and bool(now.run.effort)


def _failing(result: Result) -> set[str]:
    """The judges with a failure, which ends their search early, and the names under which they list operations."""
    judges = {check.judge for check in result.checks if check.is_failure}
    return judges | {witness.judge for witness in result.witnesses if witness.judge.partition(" ")[0] in judges}


def _less_effort(before: Result, now: Result) -> Iterator[str]:
    least, effort = (operations_of(result.run.effort) for result in (before, now))
    if now.run.effort and effort < least:
        yield f"less effort: {now.run.effort}, in the baseline {before.run.effort}"


def _less_work(before: Result, now: Result) -> Iterator[str]:
    """Less work of a judge than an effort of the baseline did. A refutation ends a search early.

    What a budget alone allowed depends on the machine, and is not compared.
    """
    if not before.run.effort:
        return
    old, new = work(before), work(now)
    for judge in (judge for judge in old if judge in new and judge not in _failing(now)):
        for unit, count in old[judge].items():
            if unit != RUNS and new[judge].get(unit, 0) < count * LESS_WORK:
                yield f"less work: {judge}: {new[judge].get(unit, 0):,} {unit}, {count:,} in the baseline"


@dataclass
class ComparedResults:
    """What is different in result B. notes: what is different and neither worse nor better."""

    worse: list[str] = field(default_factory=list)
    better: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> Exit:
        return Exit.WORSE_THAN_BASELINE if self.worse else Exit.OK


def compare(name: str, before: Result, now: Result) -> ComparedResults:
    """Compare the result `now` with the result `before` of this name. Raises DocumentError for different subjects."""
    if not is_same_subject(before.run.subject, now.run.subject):
        raise DocumentError(
            f"{name} is a result of {before.run.subject}, and the other one of {now.run.subject}: results of different "
            "subjects are not compared"
        )
    found = difference(name, before, now)
    done = ComparedResults(list(found.worse), list(found.better))
    done.better += [*_stronger(before, now), *_newly_reached(before, now)]
    done.notes += [*what_differs(name, before.run, now.run), *_speed(before, now)]
    _compare_moves(before, now, done)
    return done


def _stronger(before: Result, now: Result) -> Iterator[str]:
    """The properties of each judge whose weakest verdict is stronger now; refutations are findings."""
    gained: dict[tuple[str, str, str], list[str]] = {}
    for judge in judges(now):
        for name in properties(now):
            was, found = (weakest_verdict(result, name, judge) for result in (before, now))
            if was in STRENGTH and found in STRENGTH and STRENGTH[found] > STRENGTH[was]:
                gained.setdefault((judge, was.value, found.value), []).append(name)
    for (judge, old, new), names in gained.items():
        yield f"stronger: {judge}: {', '.join(names)}: {old} before, now {new}"


def _newly_reached(before: Result, now: Result) -> Iterator[str]:
    known = {(witness.judge, witness.name) for witness in before.witnesses if witness.count}
    there = {witness.judge for witness in before.witnesses}
    for judge in dict.fromkeys(witness.judge for witness in now.witnesses if witness.judge in there):
        names = [
            witness.name
            for witness in now.witnesses
            if witness.judge == judge and witness.count and (judge, witness.name) not in known
        ]
        if names:
            yield f"newly reached: {judge}: {', '.join(names)}"


def operations_per_second(result: Result) -> float | None:
    """The operations and transitions of all judges per second of processor time; None if either is not known."""
    done = sum(count for units in work(result).values() for unit, count in units.items() if unit in STEPS)
    return done / result.run.processor_seconds if done and result.run.processor_seconds else None


def _speed(before: Result, now: Result) -> Iterator[str]:
    was, found = operations_per_second(before), operations_per_second(now)
    if was and found:
        yield (
            f"speed: {was:,.0f} operations per processor second before, now {found:,.0f} ({found / was - 1:+.1%}); it "
            "decides nothing, because one run does not show the noise (`kvproof history` does)"
        )


def _compare_moves(before: Result, now: Result, done: ComparedResults) -> None:
    """Compare the speeds of both data planes. What only the baseline has timed is worse, if the command is the same."""
    old, new = (None if result.data_plane is None else result.data_plane.bandwidth for result in (before, now))
    if old is None:
        return
    if new is not None and (reason := why_not(new, old)):
        done.notes.append(f"the speeds of the data plane are not compared: {reason}")
        return
    if before.run.command == now.run.command:
        executors = {check.id.split("/", 2)[-1] for check in now.checks}
        for name, missing in untimed(new, old, executors).items():
            done.worse += [f"no longer timed: {name}: {'; '.join(missing)}"] if missing else []
    if new is None:
        return
    for one in compared(new, old):
        text = f"{one.name}, {one.mapping}: ratio {one.before:.3f} before, now {one.now:.3f} ({one.change:+.1%})"
        if one.is_worse:
            done.worse.append(f"slower: {text}; noise is ±{one.band:.1%}")
        elif one.change > one.band:
            done.better.append(f"faster: {text}; noise is ±{one.band:.1%}")
    done.notes += filter(None, [host_change(new, old)])
