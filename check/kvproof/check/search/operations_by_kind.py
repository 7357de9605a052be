"""The operations of a random run of a level whose judge lists what is enabled: a kind by weight, then its arguments.

Of the kinds of operation that are enabled one is drawn by weight, then uniformly one of the things that it may be
about. Weights are drawn for each run and may be small or zero, so that some runs hardly ever end anything and fill what
there is. The seed determines everything.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kvproof.check.oracle.level import Level
from kvproof.check.oracle.replay import NUM_TIMED
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.operations import TypedOperation
from kvproof.check.search.result import MovedLists
from kvproof.check.search.worlds import ABSENT_SHARE, has_large_sizes
from kvproof.spec.trace import Operation

USUAL_WEIGHTS = (0.3, 1.0, 3.0)
Arguments = Callable[[Any], tuple[Any, ...]]  # from the run to further arguments of one kind


def do_nothing() -> None:
    """What a run does after each of its parts, unless a walk wants something."""


class DrawnRun:
    """What the operations of one run have in common, however they are drawn.

    weights: of each kind; zero for one that the run never does. pause: called after each part of the run. moved: the
    lists of the steps so far that move blocks, where a level has such lists.
    """

    judge: Any
    random: Random
    weights: dict[str, float]
    pause: Callable[[], None]
    moved: Sequence[MovedLists] = ()

    def draw_weights(
        self,
        kinds: Mapping[str, type[TypedOperation]],
        choices: Mapping[str, Sequence[float]],
        config: Config,
        can: Capabilities,
        without: frozenset[str],
    ) -> None:
        """Draw the weight of each kind from its choices; zero for one that is impossible here, or left out."""
        pick = self.random.choice
        self.weights = {
            kind: pick(some) if kinds[kind].is_possible(config, can) else 0.0 for kind, some in choices.items()
        }
        self.weights |= dict.fromkeys(without & self.weights.keys(), 0.0)

    def draw(self) -> Operation | None:
        """The next operation, of a kind that is drawn by weight; None if nothing is enabled."""
        kinds = self.candidates()
        weights = [self.weights[kind] + 1e-9 if self.weights[kind] else 0.0 for kind in kinds]
        kind = self.random.choices([*kinds], weights)[0]
        return self.concrete(kind, kinds[kind])

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these."""
        raise NotImplementedError

    def candidates(self) -> Mapping[str, list[int]]:
        """The kinds of operation that may be drawn now, each with what it may be about."""
        raise NotImplementedError

    def draw_from(self, random: Random) -> None:
        """Let this make the random choices of all operations from now on."""
        self.random = random

    def wanted(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now and that the run wants, each with what it may be about."""
        return {kind: about for kind, about in self.candidates().items() if self.weights[kind]}

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply so many operations, keeping those that were enabled."""
        draw, apply = self.draw, self.judge.apply
        for num_left in range(length, 0, -NUM_TIMED):
            for _ in range(min(num_left, NUM_TIMED)):
                operation = draw()
                if operation is None:
                    return
                operations.append(operation)
                if not apply(operation):
                    operations.pop()
            self.pause()


class OperationsByKind(DrawnRun):
    """Draws the operations of one run.

    weights: of some kinds, what each run draws its weight from. arguments: of some kinds, those that follow the first,
    or all if the kind is about nothing that is there.
    """

    judge: Any

    def __init__(
        self,
        level: Level,
        weights: Mapping[str, tuple[float, ...]],
        arguments: Mapping[str, Arguments],
        subject: Any,
        random: Random,
        config: Config,
        without: frozenset[str] = frozenset(),
    ) -> None:
        self.random, self.config, self.arguments = random, config, arguments
        self.judge = level.open(subject, config)
        choices = {name: weights.get(name, USUAL_WEIGHTS) for name in level.kinds}
        self.draw_weights(level.kinds, choices, config, capabilities_of(subject), without)
        if has_large_sizes(config):
            absent = [name for name, kind in level.kinds.items() if kind.is_optional and random.random() < ABSENT_SHARE]
            self.weights |= dict.fromkeys(absent, 0.0)
        self.num_named = 0
        self.pause: Callable[[], None] = do_nothing

    def new_number(self) -> int:
        """A number that this run did not use before."""
        self.num_named += 1
        return self.num_named

    def draw(self) -> Operation | None:
        """The next operation; None if nothing is enabled."""
        candidates, mine = self.candidates(), self.weights
        at = self.random.random() * sum(map(mine.__getitem__, candidates))
        for kind in candidates:
            at -= mine[kind]
            if at < 0:
                return self.concrete(kind, candidates[kind])
        return None

    def candidates(self) -> Mapping[str, list[int]]:
        """The kinds of operation that may be drawn now, each with what it may be about."""
        enabled: dict[str, list[int]] = self.judge.enabled()
        return enabled

    def wanted(self) -> dict[str, list[int]]:
        """The kinds of operation that are enabled now and that the run wants, each with what it may be about."""
        return {kind: about for kind, about in self.judge.enabled().items() if self.weights[kind]}

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these."""
        one = (about[int(self.random.random() * len(about))],) if about else ()
        return kind, *one, *(self.arguments[kind](self) if kind in self.arguments else ())
