"""The operations of a random run of a pair: prompts that share beginnings, offers that are routed soon, late or never.

A run has a temper: in some the wire is slow, so that much is under way; in some users leave often; in some a side is
busy with requests of its own. The weather of the configuration says what may happen at all. A run ends at rest.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kvproof.check.oracle.pair.judge import PairJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.features import block_size_within
from kvproof.check.protocol.pair import DECODE, PREFILL, SIDES, SLOW, PairConfig, PairSubject
from kvproof.check.search.operations_by_kind import DrawnRun, do_nothing
from kvproof.check.search.worlds import Sizes, draw_small_sizes
from kvproof.spec.trace import Operation

RUN_LENGTH = 80
BLOCK_SIZES = (1, 2, 4, 4)
FACTORS = (1, 1, 2, 4)  # by which the blocks of the sides differ, where they may
RANKED_SHARE = 0.5  # of the configurations of a pair whose sides may have several ranks
HEADS = (0, 1, 2, 4, 4)
NUM_BLOCKS_MIN = 5
NUM_BLOCKS_MAX = 12
LONGEST = 16  # tokens of a prompt
NUM_NEW, NUM_NEW_BEHIND_ONE = 4, 8  # tokens to generate at DECODE, and where the first one comes with the KV
NUM_REQUESTS = (1, 2, 4)  # of a side at a time, at most
NUM_TOKENS = (1, 2, 3)  # different ones
KNOWN_SHARE = 0.5  # of the prompts: those that a run uses again, whole, or with another end
FORGOTTEN_SHARES = 0.1, 0.1, 0.4  # of the offers of a run: those that the router forgets
FAILED_SHARE = 0.3  # of the transfers of a lossy day: those that fail
SHORT_WAITS = (1, 1, 2, 5)
LONG_WAIT_SHARE = 0.3  # of those of a day that is not calm
STALLED_SHARE = 0.35  # of the runs of a day that is not calm: those in which transfers take as long as several leases
STALLED = {"pass": 1.0, "arrive": 0.03, "deliver": 3.0, "route": 1.0, "work": 2.0}  # weights of such a run
WEIGHTS = {
    "prompt": (0.5, 1.0),
    "route": (0.5, 1.0, 2.0),
    "local": (0.0, 0.2, 0.5),
    "quit": (0.0, 0.1, 0.5),
    "schedule_side": (3.0,),
    "launch_side": (3.0,),
    "complete_side": (3.0,),
    "arrive": (0.2, 1.0, 3.0),
    "deliver": (0.3, 1.0, 3.0),
    "repeat": (0.0, 0.3),
    "lose": (0.0, 0.1, 0.5),
    "work": (0.5, 2.0),
    "work_in_vain": (0.0, 0.3),
    "pass": (0.1, 0.3),
    "die": (0.1, 0.3),
    "rest": (0.0, 0.03),
}


def draw_config(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_small_sizes
) -> PairConfig:
    """A configuration of small sizes; `fixed` fields are kept."""
    can, pick = capabilities, random.choice
    block_size = block_size_within(pick(BLOCK_SIZES), can)
    spare = -(-can.spare_tokens // block_size)
    drawn: dict[str, Any] = {
        "block_size": block_size,
        "num_gpu_blocks": random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX) + spare,
        "decode_blocks": random.randint(NUM_BLOCKS_MIN, NUM_BLOCKS_MAX) + spare,
        "weather": pick(can.weathers),
    }
    if can.block_sizes and (factor := pick(FACTORS)) > 1:
        drawn["decode_block_size"] = block_size * factor if random.random() < 0.5 else max(1, block_size // factor)
    if can.caching:
        drawn["caching"] = random.random() < 0.6
    if can.load_failures:
        drawn["load_failures"] = pick(("", *can.load_failures))
    if can.ranks and random.random() < RANKED_SHARE:
        drawn |= {"prefill_ranks": pick(can.ranks), "decode_ranks": pick(can.ranks), "num_heads": pick(HEADS)}
    return PairConfig(**(drawn | (fixed or {})))


class PairOperations(DrawnRun):
    """Draws the operations of one run."""

    judge: PairJudge

    def __init__(
        self, subject: PairSubject, random: Random, config: PairConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = PairJudge(subject, config)
        can, pick = capabilities_of(subject), random.choice
        self.draw_weights(self.judge.kinds, WEIGHTS, config, can, without)
        self.comes_to_rest = "rest" not in without
        self.num_requests_max, self.num_tokens = pick(NUM_REQUESTS), pick(NUM_TOKENS)
        self.num_new_max = NUM_NEW_BEHIND_ONE if can.sends_token else NUM_NEW
        self.lease_seconds, self.forgotten_share = can.lease_seconds or 1, pick(FORGOTTEN_SHARES)
        self.is_stalled = config.has_weather(SLOW) and random.random() < STALLED_SHARE
        self.round: Iterator[Operation] = iter(())  # what a stalled run does after time has passed
        if self.is_stalled:
            self.num_requests_max, self.forgotten_share = max(2, self.num_requests_max), FORGOTTEN_SHARES[-1]
            self.weights |= {kind: weight for kind, weight in STALLED.items() if self.weights[kind]}
        self.prompts = [self._new_tokens() for _ in range(3)]
        self.num_requests = 0
        self.forgotten: set[int] = set()
        self.decided: set[int] = set()
        self.pause: Callable[[], None] = do_nothing

    def run(self, operations: list[Operation], length: int) -> None:
        """Draw and apply so many operations, and come to rest."""
        super().run(operations, length)
        if self.comes_to_rest:
            operations.append(("rest",))
            if not self.judge.apply(("rest",)):
                operations.pop()

    def draw(self) -> Operation | None:
        """The next operation."""
        if (planned := next(self.round, None)) is not None:
            return planned
        return super().draw()

    def candidates(self) -> dict[str, list[int]]:
        """The kinds of operation that may be drawn now, each with what it may be about."""
        kinds = {kind: about for kind, about in self.judge.enabled().items() if kind in self.weights}
        busy = [sum(1 for one in self.judge.pair.live(side)) >= self.num_requests_max for side in SIDES]
        if busy[0]:
            kinds.pop("prompt", None)
        if all(busy):
            kinds.pop("local", None)
        if "route" in kinds:
            kinds["route"] = self._not_forgotten(kinds["route"])
            if busy[1] or not kinds["route"]:
                del kinds["route"]
        return kinds

    def _not_forgotten(self, offers: list[int]) -> list[int]:
        for offer in offers:
            if offer not in self.decided:
                self.decided.add(offer)
                if self.random.random() < self.forgotten_share:
                    self.forgotten.add(offer)
        return [offer for offer in offers if offer not in self.forgotten]

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these."""
        random, pick = self.random, self.random.choice
        match kind:
            case "prompt":
                return kind, self._new_number(), self._tokens()
            case "local":
                return kind, self._new_number(), self._tokens(), random.randint(1, 4), pick(SIDES)
            case "route":
                return kind, pick(about), self._new_number(), random.randint(1, self.num_new_max)
            case "pass":
                self.round = self._round() if self.is_stalled else self.round
                return kind, self._seconds()
            case "arrive":
                return self._arrival(pick(about))
        return (kind, pick(about)) if about else (kind,)

    def _round(self) -> Iterator[Operation]:
        """The reader steps, what it says arrives, and then the other side steps."""
        pair = self.judge.pair
        for side in (DECODE, PREFILL):
            if pair.steps[side] is None:
                yield "schedule_side", side
            if not pair.is_launched[side]:
                yield "launch_side", side
            yield "complete_side", side
            yield from [("deliver", message) for message in pair.messages]

    def _arrival(self, transfer: int) -> Operation:
        if not self.config.has_weather("lossy") or self.random.random() >= FAILED_SHARE:
            return "arrive", transfer
        number = len(self.judge.pair.moving[transfer].pieces)
        return "arrive", transfer, self.random.randint(0, number)

    def _new_number(self) -> int:
        self.num_requests += 1
        return self.num_requests

    def _seconds(self) -> int:
        if self.is_stalled:
            return self.lease_seconds // self.random.choice((2, 3)) + 1
        if self.config.has_weather(SLOW) and self.random.random() < LONG_WAIT_SHARE:
            return self.random.choice((self.lease_seconds // 2 + 1, self.lease_seconds + 1))
        return self.random.choice(SHORT_WAITS)

    def _new_tokens(self) -> tuple[int, ...]:
        return tuple(self.random.randrange(self.num_tokens) for _ in range(self.random.randint(1, LONGEST)))

    def _tokens(self) -> tuple[int, ...]:
        if self.random.random() >= KNOWN_SHARE:
            return self._new_tokens()
        known = self.random.choice(self.prompts)
        if self.random.random() < 0.5:
            return known
        cut = known[: self.random.randint(1, len(known))] + self._new_tokens()
        return cut[:LONGEST]
