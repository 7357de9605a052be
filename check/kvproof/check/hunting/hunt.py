"""One hunt: a subject is searched in small scopes, then with random walks, in units that anybody may do.

The runs that earlier hunts of the subject have saved in the folder are replayed first. So a fault that was found once
is seen at once while it is there, as in the example database of Hypothesis. It says nothing about the search: what
these runs refute is neither known to the search nor counted in it, so it draws and finds what it draws and finds in an
empty folder. A folder may hold many runs, and long ones. The shortest come first, and all together do at most as many
operations as it may take to shorten one finding; the result counts them, and the runs that were left out.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import CounterexampleError, config_of, operations_of
from kvproof.check.hosts.choice import opened
from kvproof.check.hosts.time_limit import search_ends_after
from kvproof.check.hosts.workers import StatefulWorkers
from kvproof.check.hunting.explore_stage import subject_stage
from kvproof.check.hunting.findings import Saving, saving_of
from kvproof.check.hunting.head import Head, here
from kvproof.check.hunting.resume import HuntPlan, begun, continued
from kvproof.check.hunting.scope_unit import ScopeUnits
from kvproof.check.hunting.store import ResultStore
from kvproof.check.hunting.unit import Judged, make_ready
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.level import Level, level_named, level_of, level_of_config
from kvproof.check.oracle.repetition import nondeterministic, replay_twice
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.manager import ManagerSubject, Unsupported
from kvproof.check.protocol.scopes import Scope
from kvproof.check.runs.arguments import (
    Narrowed,
    agrees,
    factory_of,
    fixed_fields,
    require_fields_of,
    wanted_properties,
)
from kvproof.check.runs.effort import Effort, effort_of
from kvproof.check.runs.errors import UsageError, fail
from kvproof.check.runs.history import require_recordable
from kvproof.check.runs.run import RunOptions, run_stages
from kvproof.check.runs.session import Stage, StageBudget, StageOutput
from kvproof.check.runs.store import CRASHES, Store
from kvproof.check.runs.terminal import output, say
from kvproof.check.runs.verdicts import planned_checks
from kvproof.check.search.strategies import Strategy, strategy_of
from kvproof.check.subjects.loading.checkouts import without_folders
from kvproof.check.subjects.loading.shipping import SHIPPING
from kvproof.reports.summary import number
from kvproof.spec.verdict import Exit

JUDGE = "saved runs"
SHARE = 1.0  # percent of the budget
SEEDS_MAX = 100  # runs that are replayed
TIMES_REPLAYED = 2

EXPLORER_SHARE, EXPLORER_SECONDS_MAX = 15.0, 15.0  # percent of the budget; the walker gets the rest


def saved_runs(folder: Path, subject: str) -> list[str]:
    """The names of the files in the folder of a result that hold runs of this subject, the shortest runs first."""
    found = []
    for path in (folder / CRASHES).glob("*.json"):
        with suppress(CounterexampleError, OSError):
            trace = load(path)
            if trace.subject in (subject, without_folders(subject)):
                found.append((len(trace.operations), path.name))
    return [name for _, name in sorted(found)]


def seeds_stage(saving: Saving, names: list[str], keeps_going: bool, max_operations: int) -> Stage:
    """Replay the runs of these files, and report those that still refute, one of each property and mechanism.

    Without keeps_going, the first of them ends the hunt. max_operations: of all runs together.
    """

    def run(budget: StageBudget) -> Iterator[StageOutput]:
        kinds, num_done, num_operations, num_left = set[tuple[str, str]](), 0, 0, 0
        level = level_of(saving.make())
        with search_ends_after(budget.seconds):
            for name in names:
                path = saving.store.crashes / name
                if (run := _run_of(path, saving.fixed, level)) is None:
                    continue
                cost = TIMES_REPLAYED * len(run[1])
                if num_done == SEEDS_MAX or num_operations + cost > max_operations:
                    num_left += 1
                    continue
                num_done, num_operations = num_done + 1, num_operations + cost
                found = _replayed(saving, *run)
                if found is None or found.kind in kinds:
                    continue
                kinds.add(found.kind)
                yield (check := saving.report_again(JUDGE, path, found))
                if check.is_failure and not keeps_going:
                    break
        if num_done or num_left:
            done = f"{number(num_done, 'was', 'were')} replayed first, {number(len(kinds), 'fails', 'fail')}"
            left = f"; {number(num_left, 'longer one was', 'longer ones were')} left out" if num_left else ""
            budget.notes.append(f"{done}; {num_operations:,} operations beside the effort{left}")

    return Stage(JUDGE, SHARE, [], run)


def _run_of(path: Path, fixed: Mapping[str, Any], level: Level) -> tuple[Any, list[Any]] | None:
    """The configuration and the operations of a file; None if it is no run of this hunt."""
    try:
        trace = load(path)
        config = config_of(trace, path)
        is_ours = level_of_config(config) is level and agrees(config, fixed)
        return (config, operations_of(trace, path)) if is_ours else None
    except (CounterexampleError, OSError):
        return None


def _replayed(saving: Saving, config: Any, operations: list[Any]) -> Counterexample | None:
    """What the run refutes now; None if it refutes nothing, or the subject does not have the configuration."""
    try:
        done, parted = replay_twice(saving.make, config, operations)
    except Unsupported:
        return None
    finding = done.finding if parted is None else nondeterministic(parted)
    return None if finding is None else Counterexample(config, operations[: len(done.steps)], finding)


@dataclass
class HuntOptions:
    """The options of `kvproof hunt`. seed: None only to resume a hunt. words: those that repeat it."""

    subject: str | None
    seed: int | None
    level: str | None = None
    effort: str | None = None
    budget: float | None = None
    keeps_going: bool = True
    wanted: list[str] = field(default_factory=list)
    fix: list[str] = field(default_factory=list)
    resume: Path | None = None
    workers: str | None = None
    is_trusted: bool = False
    isolation: bool | None = None
    known: Path | None = None
    contract_fails: bool = False
    baseline: Path | None = None
    history: Path | None = None
    out: Path = Path()
    json: Path | None = None
    words: list[str] = field(default_factory=list)


def hunt(given: HuntOptions) -> Exit:
    """Search for counterexamples of one subject. Raises UsageError, StoreError."""
    require_recordable(given.history)
    with ExitStack() as ending:
        store = Store(given.resume or given.out)
        results, plan = _plan_of(given, store, ending)
        judged = Judged(plan.subject, given.isolation, given.budget)
        pool = ending.enter_context(opened(given.workers, SHIPPING))
        if pool is not None:
            pool.prepare(make_ready, judged)
        make, one = factory_of(plan.subject, given.isolation, given.budget)
        _require_level(given.level, plan.subject, one)
        require_fields_of(level_of(one).config, plan.fixed)
        options = _run_options(given, plan, store, _impossible(one, plan.properties, plan.fixed))
        saving = saving_of(options, make, given.isolation)  # before a folder is made: it may refuse a baseline
        saving.fixed = plan.fixed
        if results is None:
            store.claim()
            plan.saved = saved_runs(store.folder, plan.subject)
            results = ending.enter_context(closing(begun(store.folder, plan)))
        saving.results, saving.wanted = results, frozenset(plan.properties)
        for name, reason in level_of(one).excluded_witnesses(plan.fixed).items():
            say(output(), f"not expected with these fixed fields: {name} ({reason})")
        head = here(make, results) if pool is None else Head(pool, store=results)
        searches = Searches(saving, one, options.effort, given.budget, given.keeps_going, plan.saved)
        stages = searches.stages(head, pool)
        facts = {} if pool is None else {"workers": pool.name}
        return run_stages(options, stages, one, stops_at_first=not given.keeps_going, environment=facts)


def _plan_of(given: HuntOptions, store: Store, ending: ExitStack) -> tuple[ResultStore | None, HuntPlan]:
    """What is hunted for, and the store of a hunt that is resumed."""
    if given.resume is None:
        if given.subject is None:
            raise UsageError("no subject is given: name one with --subject, or continue a hunt with --resume DIR")
        assert given.seed is not None
        fixed, wanted = fixed_fields(given.fix), wanted_properties(given.wanted)
        effort = effort_of(given.effort, given.budget, given.subject).name
        return None, HuntPlan(given.subject, given.seed, effort, given.words, fixed, wanted)
    if given.fix or given.wanted:
        option = "--fix" if given.fix else "--property"
        raise UsageError(f"--resume continues with the options of the first hunt; leave {option} out")
    results, plan = continued(store, HuntPlan, given.subject, given.seed, given.effort, given.budget, given.is_trusted)
    ending.enter_context(closing(results))
    return results, plan


def _run_options(given: HuntOptions, plan: HuntPlan, store: Store, impossible: dict[str, str]) -> RunOptions:
    effort = effort_of(plan.effort or None, given.budget, plan.subject)
    options = RunOptions(
        "hunt",
        plan.subject,
        plan.seed,
        given.budget,
        store.folder,
        given.json,
        given.known,
        given.contract_fails,
        effort,
        baseline=given.baseline,
        history=given.history,
        words=plan.words_with(given.words),
    )
    options.store = store
    options.messages = tuple(f"--property {name}: {reason}" for name, reason in impossible.items())
    return options


@dataclass
class Searches:
    """The searches of a hunt. saved: the files of runs that are replayed first."""

    saving: Saving
    subject: ManagerSubject
    effort: Effort
    budget: float | None = None
    keeps_going: bool = True
    saved: list[str] = field(default_factory=list)

    def stages(self, head: Head, pool: StatefulWorkers | None = None) -> list[Stage]:
        """What was found before, the scopes, and the walk; workers walk first if they search the scopes beside it."""
        strategy = strategy_of(self.subject)
        stages: list[Stage] = []
        if self.saved:
            most = self.effort.shrinking_operations
            stages.append(seeds_stage(self.saving, self.saved, self.keeps_going, most))
        units = None if pool is None else ScopeUnits(pool, self.saving.judged)
        if strategy.can_explore:
            stages.append(self._scopes(strategy, units))
        share = 100.0 - sum(stage.share for stage in stages)
        walk = self.saving.walk(self.effort.operations)
        walker = walker_stage(self.subject, self.saving, share, walk, self.keeps_going, head)
        is_beside = strategy.can_explore and units is not None and units.is_beside_the_walk(not self.keeps_going)
        stages.insert(len(stages) - 1 if is_beside else len(stages), walker)
        return stages

    def _scopes(self, strategy: Strategy, units: ScopeUnits | None) -> Stage:
        budget, most = self.budget, self.effort.hunted_transitions
        share = EXPLORER_SHARE if budget is None else min(EXPLORER_SHARE, 100 * EXPLORER_SECONDS_MAX / budget)
        exhaustive = strategy.exhaustive
        scopes: dict[str, Scope] = {
            name: scope
            for name, scope in exhaustive.hunted.items()
            if agrees(exhaustive.config_of(scope), self.saving.fixed)
        }
        make, saving = self.saving.make, self.saving
        return subject_stage(make, self.subject, scopes, saving, share, True, self.keeps_going, most, units)


def _require_level(name: str | None, subject: str, one: ManagerSubject) -> None:
    """Raise UsageError unless the subject has this level."""
    try:
        if name is not None and (named := level_named(name)) is not (actual := level_of(one)):
            raise UsageError(f"{subject} is of level {actual.name}, not {named.name}; leave --level out")
    except ValueError as error:
        raise UsageError(str(error)) from error


def _impossible(subject: ManagerSubject, wanted: Collection[str], fixed: dict[str, Any]) -> dict[str, str]:
    """The wanted properties that no hunt of this subject can refute, each with the reason.

    Exits with 5 if there is no other: the hunt would find nothing, whatever is wrong.
    """
    strategy = strategy_of(subject)
    checks = planned_checks(strategy.level, strategy.judge, Narrowed(subject, fixed) if fixed else subject)
    reasons = {check.property: check.text for check in checks if not check.is_decided}
    found = {name: reasons[name] for name in wanted if name in reasons}
    if found and len(found) == len(wanted):
        what = "; ".join(f"{name}: {reason}" for name, reason in found.items())
        raise fail(f"nothing of what is asked for can be checked: {what}", Exit.NOTHING_CHECKED)
    return found
