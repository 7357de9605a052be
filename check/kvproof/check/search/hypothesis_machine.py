"""The Hypothesis machine: the operations of the random walk as rules of a `RuleBasedStateMachine`, in lockstep.

Every level has one. Each kind of operation is a rule, which is enabled when one of its concrete operations is. Each
choice that the walk makes at random is made by Hypothesis instead, so the walk alone states what a run may hold.
Hypothesis adds its own search (kinds switched off for a whole run, values that were interesting before) and its
shrinker. A number shrinks towards zero: the first candidate, the shortest prompt, the smallest pool.

Requests of a scheduler must all end once no more arrive. So a run stops arrivals at some time, and goes on until all
requests have ended; then nothing is enabled, and it begins again with the subject opened again.

Findings of different kinds are different failures, so that shrinking does not slide from one to another. Everything is
derived from the seed, nothing is printed, and no database is used.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from keyword import iskeyword
from math import inf
from random import Random
from time import monotonic
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st
from hypothesis.errors import Flaky, Unsatisfiable
from hypothesis.internal.conjecture import engine
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.reporting import with_reporter
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from kvproof.check.hosts.time_limit import OutOfTime, time_limit_of
from kvproof.check.oracle.replay import Counterexample, is_hang
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.finding import Finding, FindingKey
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.search.result import UNLIMITED, SearchResult
from kvproof.check.search.strategies import OperationGenerator, Strategy, strategy_of
from kvproof.check.search.worlds import draw_small_sizes, sizes_of
from kvproof.spec.trace import Operation

NUM_FRACTIONS = 64  # different random numbers between 0 and 1
BITS = 16
PLAIN_SEED = 2  # of the weights and lengths of a shrunk run: they leave short runs possible
Draw = Callable[[st.SearchStrategy[Any]], Any]


@functools.cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Choices(Random):
    """A generator of random numbers that asks Hypothesis, through the current `draw`, which can make them smaller.

    What draws from a `random.Random` (configurations, operations, prompts) can so be driven by Hypothesis without being
    written again.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.draw: Draw = _no_draw
        self.shrinks_to_one = False  # a flag that is on below some fraction then shrinks to off

    def _below(self, stop: int) -> int:
        return int(self.draw(_integers(0, stop - 1))) if stop > 1 else 0

    def random(self) -> float:
        """A number in [0, 1), of few different ones."""
        number = self._below(NUM_FRACTIONS)
        return (NUM_FRACTIONS - 1 - number if self.shrinks_to_one else number) / NUM_FRACTIONS

    def getrandbits(self, k: int) -> int:
        """An integer of at most k bits."""
        return self._below(1 << min(k, BITS))

    def randint(self, a: int, b: int) -> int:
        """An integer from a to b."""
        return a + self._below(b - a + 1)

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """An element of a range."""
        choices = range(start) if stop is None else range(start, stop, step)
        return choices[self._below(len(choices))]

    def choice(self, seq: Any) -> Any:
        """An element of a sequence."""
        return seq[self._below(len(seq))]

    def choices(self, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
        """Elements of a sequence; Hypothesis decides how often each kind comes."""
        return [self.choice(population) for _ in range(k)]


def _no_draw(strategy: st.SearchStrategy[Any]) -> Any:
    raise AssertionError(f"{strategy} was drawn outside of a rule")


STEP_SECONDS_MAX = 5.0
SHRINK_STEPS_MAX = 10_000  # counted and not timed, so that a run repeats on a slower machine


# Failures ---------------------------------------------------------------------------------------------------------


class RunRefuted(Exception):
    """A run refuted something; each kind of finding has a class of its own, so that Hypothesis tells them apart."""

    kind: tuple[str, str] = ("", "")


@functools.cache
def _refuted(kind: tuple[str, str]) -> type[RunRefuted]:
    return type("RunRefuted", (RunRefuted,), {"kind": kind})


class Stop(BaseException):
    """Ends Hypothesis at once: time is up, the subject hangs, or an error is no finding."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(error)
        self.error = error


class HypothesisRun:
    """The state of one search by Hypothesis: the run under way, and of each kind of finding the shortest run.

    past: kinds of findings that are excused. At one of these a run begins again, with the subject opened again.
    """

    def __init__(
        self, subject: Any, fixed: dict[str, Any] | None, deadline: float, past: Collection[FindingKey] = ()
    ) -> None:
        self.subject, self.fixed, self.deadline, self.past = subject, fixed, deadline, past
        self.strategy: Strategy = strategy_of(subject)
        self.num_steps_max = UNLIMITED
        self.done = SearchResult()
        self.found: dict[tuple[str, str], Counterexample] = {}
        self.stop: Stop | None = None
        self.driver: OperationGenerator | None = None
        self.enabled: Mapping[str, list[int]] = {}
        self.choices = Choices()
        self.config: Any = None
        self.operations = list[Operation]()
        self.sizes: list[str] = []  # of the configuration that was drawn last
        self.sizes_under_way: list[str] = []

    def open(self, draw: Draw) -> OperationGenerator:
        """Open the subject in a configuration that Hypothesis chooses."""
        self.choices.draw, self.choices.shrinks_to_one = draw, True
        can, sizes = capabilities_of(self.subject), draw_small_sizes
        self.config, self.operations = self.strategy.draw_config(self.choices, can, self.fixed, sizes), []
        self.choices.shrinks_to_one = False
        self.done.num_drawn += 1
        self.sizes = [*sizes_of(self.config)]
        self.done.sizes.update(self.sizes)
        with self._guarded():
            return self._generator(PLAIN_SEED + self.choices.randrange(1 << 10))

    def _generator(self, seed: int) -> OperationGenerator:
        """What draws the operations. seed: of weights and lengths, whose numbers need not shrink."""
        driver = self.strategy.generator(self.subject, Random(seed), self.config, frozenset())
        driver.draw_from(self.choices)
        return driver

    def take(self, driver: OperationGenerator | None) -> None:
        """Count the run that is over, and begin another one, if any."""
        if self.driver is not None:
            self.done.num_runs += 1
            self.done.coverage.update(self.driver.judge.coverage)
            self.done.coverage.update(self.sizes_under_way)
            self.done.notes.update(self.driver.judge.notes)
        self.driver, self.sizes_under_way = driver, self.sizes
        self._look()

    def concrete(self, draw: Draw, kind: str) -> Operation:
        """One of the enabled operations of a kind."""
        assert self.driver is not None
        self.choices.draw = draw
        return self.driver.concrete(kind, self.enabled[kind])

    def step(self, operation: Operation) -> None:
        """Do one operation in lockstep."""
        assert self.driver is not None
        if monotonic() > self.deadline or self.done.num_operations >= self.num_steps_max:
            raise self.stopped()
        self.done.num_operations += 1
        self.operations.append(operation)
        with self._guarded():
            try:
                if not self.driver.judge.apply(operation):
                    self.operations.pop()
            except Finding as finding:
                if finding.key(self.operations) not in self.past:
                    raise
                self.done.num_past += 1
                self._begin_again()
            self._look()
            if not self.enabled:
                self._begin_again()

    def _begin_again(self) -> None:
        """Go on with the run in a subject that is opened again, in the same configuration."""
        self.operations = []
        self.take(self._generator(PLAIN_SEED))

    def _look(self) -> None:
        """Update which kinds of operation are enabled, and wanted in this run."""
        if self.driver is not None:
            self.enabled = self.driver.wanted()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A finding fails the run, an unsupported configuration rejects it, anything else ends the search."""
        try:
            with time_limit_of(self.subject, STEP_SECONDS_MAX):
                yield
        except Unsupported as error:
            self.done.refuse(str(error))
            hypothesis.reject()
        except OutOfTime:
            raise self.stopped() from None
        except Finding as finding:
            self._keep(finding)
            if is_hang(finding):
                raise self.stopped() from finding
            raise _refuted(finding.kind)(finding.text) from None
        except Exception as error:
            raise self.stopped(error) from error

    def stopped(self, error: Exception | None = None) -> Stop:
        """The exception that ends the search; remembered, because Hypothesis may take the interrupted run for flaky."""
        self.stop = Stop(error)
        return self.stop

    def _keep(self, finding: Finding) -> None:
        if not self.found:
            self.num_steps_max = self.done.num_operations + SHRINK_STEPS_MAX
        best = self.found.get(finding.kind)
        if best is None or len(self.operations) <= len(best.operations):
            self.found[finding.kind] = Counterexample(self.config, self.operations, finding)

    def refute(self, kind: tuple[str, str] | None = None) -> None:
        """Report the finding of this kind, or else the first."""
        if self.found:
            self.done.counterexample = self.found[kind] if kind in self.found else next(iter(self.found.values()))

    def refute_repetition(self) -> None:
        """Report that the same choices gave another run."""
        self.refute()
        found, outcome = self.done.counterexample, "nothing was refuted"
        if found is None:
            found = Counterexample(self.config, self.operations, Finding("nondeterministic", ""))
        else:
            outcome = f"{found.finding.property} was refuted ({found.finding.text})"
        text = "the same calls, other answers: once $outcome, and with the same choices not the same again"
        self.done.counterexample = replace(
            found, finding=Finding("nondeterministic", text, values={"outcome": outcome})
        )


# The machine ------------------------------------------------------------------------------------------------------


@st.composite
def _opened(draw: Draw, search: HypothesisRun) -> OperationGenerator:
    return search.open(draw)


@st.composite
def _concrete(draw: Draw, search: HypothesisRun, kind: str) -> Operation:
    return search.concrete(draw, kind)


def _machine(search: HypothesisRun) -> type[RuleBasedStateMachine]:
    """A machine whose rules are the operations."""

    class Machine(RuleBasedStateMachine):
        @initialize(driver=_opened(search))
        def open(self, driver: OperationGenerator) -> None:
            search.take(driver)

        def teardown(self) -> None:
            search.take(None)

    for kind in sorted(search.strategy.level.kinds):
        setattr(Machine, kind, _rule(search, kind))
    return Machine


def _rule(search: HypothesisRun, kind: str) -> Any:
    def do(self: RuleBasedStateMachine, operation: Operation) -> None:
        search.step(operation)

    do.__name__ = do.__qualname__ = f"{kind}_" if iskeyword(kind) else kind  # Hypothesis makes a `def` with this name
    return rule(operation=_concrete(search, kind))(precondition(lambda self: kind in search.enabled)(do))


def drive(
    subject: Any,
    seed: int,
    *,
    examples: int,
    steps: int,
    seconds: float = inf,
    fixed: dict[str, Any] | None = None,
    past: Collection[FindingKey] = (),
) -> SearchResult:
    """Let Hypothesis look for a run that refutes, and shrink it; past: findings that refute nothing here.

    Raises AdapterError.
    """
    began = monotonic()
    search = HypothesisRun(subject, fixed, began + seconds, past)
    machine = hypothesis.seed(seed)(_machine(search))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    try:
        with with_reporter(_say_nothing), _repeatable():
            run_state_machine_as_test(machine, settings=settings)
    except RunRefuted as refuted:
        search.refute(refuted.kind)
    except (Stop, Flaky):
        if search.stop is None:
            search.refute_repetition()
        elif search.stop.error is not None:
            raise search.stop.error from None
        else:
            search.refute()
    except Unsatisfiable:
        search.done.is_unsupported = True
    search.done.seconds = monotonic() - began
    return search.done


@contextmanager
def _repeatable() -> Iterator[None]:
    """Keep Hypothesis from what would give a seed another meaning elsewhere.

    It mixes in constants of the modules that happen to be loaded, and shrinks for at most five minutes by the clock.
    Shrinking has limits that are counted: SHRINK_STEPS_MAX, and one of Hypothesis.
    """
    with ExitStack() as restored:
        for owner, name, value in (
            (HypothesisProvider, "_maybe_draw_constant", lambda *arguments, **named: None),
            (engine, "MAX_SHRINKING_SECONDS", inf),
        ):
            if hasattr(owner, name):
                restored.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)
        yield


def _say_nothing(text: object) -> None:
    """Print nothing: the finding holds all that Hypothesis would print."""
