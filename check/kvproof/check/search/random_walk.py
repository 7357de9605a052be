"""What every walk has in common, of a pool, a manager or a whole scheduler: its frame, its report, limits and words."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Capabilities, Config, PromptKeys, Unsupported
from kvproof.check.protocol.time_limit import time_limit
from kvproof.check.search import suppression
from kvproof.spec.trace import Operation

RUN_SECONDS_MAX = 20.0
NUM_REFUSED_CONFIGS_MAX = 1000
ADAPTERS = ((None, 0), ("X", 1), ("X", 2), ("Y", 3))  # ids are unique, names need not be
SALTS = (None, "X", "Y")  # one small alphabet for every string, so that any two can meet
WITH_IMAGES = 0.8  # of the prompts that are long enough


@dataclass
class Walk:
    """What a walk found, and how much it did. With a finding: the configuration and the operations up to it."""

    finding: Finding | None = None
    config: Config = field(default_factory=Config)
    operations: list[Operation] = field(default_factory=list)
    num_operations: int = 0
    num_runs: int = 0
    num_drawn: int = 0  # runs, and configurations that the subject refused
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    witnesses: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    is_unsupported: bool = False

    def add(self, done: "Walk") -> None:
        """This walk went on with another one; what that found is what this one found."""
        self.num_operations += done.num_operations
        self.num_runs += done.num_runs
        self.num_drawn += done.num_drawn
        self.seconds += done.seconds
        self.is_unsupported = done.is_unsupported
        self.kinds.update(done.kinds)
        self.witnesses.update(done.witnesses)
        self.notes.update(done.notes)
        self.finding, self.config, self.operations = done.finding, done.config, done.operations


class Judged(Protocol):
    """What counts along a run."""

    coverage: Counter[str]
    notes: Counter[str]


class Run(Protocol):
    """One run: it draws operations, and applies them to its judge."""

    @property
    def judge(self) -> Judged:
        """Where the operations go."""
        ...

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply about so many, noting each; raises Finding."""
        ...


class HasCapabilities(Protocol):
    """A subject of whichever level."""

    capabilities: Capabilities


C = TypeVar("C", bound=Config)
S = TypeVar("S", bound=HasCapabilities)
Without = frozenset[str]  # features that a run leaves out


@dataclass(frozen=True)
class WalkOptions:
    """How a walk goes, besides what it draws.

    first_run: so many runs of the seed are passed over, because they were done before. begin: gives the list that the
    operations of a run go to, before they are done; so another process can say where this one ended. run_seconds: the
    time that one run may take in this process. told: findings that end their run and not the walk, and that runs
    are steered around. wanted: the one kind of finding that ends the walk, if not every one does.
    """

    first_run: int = 0
    begin: Callable[[Config], list[Operation]] = lambda config: []
    run_seconds: float = RUN_SECONDS_MAX
    told: tuple[suppression.KnownFailure, ...] = ()
    wanted: tuple[str, str] | None = None

    def ends(self, finding: Finding, config: Config, operations: list[Operation]) -> bool:
        """Whether the walk ends with this finding."""
        return self.wanted in (None, finding.kind) and not suppression.is_duplicate(
            self.told, finding, config, operations
        )


DEFAULT_OPTIONS = WalkOptions()


@dataclass(frozen=True)
class Walker(Generic[S, C]):
    """The walks of one level: how a configuration is drawn, what drives a run in it, and about how long that is.

    again: told of every run that refuted nothing (its number, configuration, operations); may raise Finding.
    """

    draw: Callable[[Random, Capabilities, dict[str, Any] | None], C]
    drive: Callable[[S, Random, C, Without], Run]
    run_length: int
    again: Callable[[S, int, C, list[Operation]], None] | None = None

    def walk(
        self,
        subject: S,
        seed: int,
        *,
        max_operations: int,
        seconds: float,
        fixed: dict[str, Any] | None = None,
        progress: Callable[[int], None] | None = None,
        options: WalkOptions = DEFAULT_OPTIONS,
    ) -> Walk:
        """Run after run, each from a seed and a configuration of its own, until one refutes or a limit is reached."""
        done, began, random = Walk(), monotonic(), Random(seed)
        num_refused = 0
        for _ in range(options.first_run):
            random.getrandbits(64)
        while done.num_operations < max_operations and monotonic() - began < seconds:
            run: Run | None = None
            run_random = Random(random.getrandbits(64))
            without = suppression.disabled_features(run_random, options.told)
            config = self.draw(run_random, subject.capabilities, suppression.plain(fixed, without))
            operations = options.begin(config)
            done.num_drawn += 1
            try:
                with time_limit(options.run_seconds):
                    run = self.drive(subject, run_random, config, without)
                    run.run(operations, min(self.run_length, max_operations - done.num_operations))
                if self.again:
                    self.again(subject, done.num_runs, config, operations)
            except Unsupported:
                num_refused += 1
                if num_refused > NUM_REFUSED_CONFIGS_MAX and not done.num_runs:
                    done.is_unsupported = True
                    break
                continue
            except Finding as finding:
                if options.ends(finding, config, operations):
                    done.finding, done.operations, done.config = finding, operations, config
            done.num_runs += 1
            done.num_operations += len(operations)
            done.kinds.update([operation[0] for operation in operations])
            if run:
                done.witnesses.update(run.judge.coverage)
                done.notes.update(run.judge.notes)
            if done.finding:
                break
            if progress:
                progress(done.num_operations)
        done.seconds = monotonic() - began
        return done


def draw_key(random: Random, config: Config) -> tuple[str | None, int, str | None]:
    """An adapter and a salt, as far as prompts of this configuration have them."""
    name, number = random.choice(ADAPTERS) if config.keys >= PromptKeys.ADAPTERS else ADAPTERS[0]
    return name, number, random.choice(SALTS) if config.keys >= PromptKeys.ADAPTERS_AND_SALTS else None


def draw_images(random: Random, config: Config, num_tokens: int) -> tuple[tuple[str, int, int], ...]:
    """Images in a prompt of so many tokens, if it has any; an image's name fixes its number of rows."""
    if not (config.images and num_tokens > 3 and random.random() < WITH_IMAGES):
        return ()
    first = random.randint(0, num_tokens - 3)
    return ("P", first, 1), ("Q", random.randint(first + 1, num_tokens - 2), 2)
