"""The operations of a random run of a store: requests store and load a few keys in few slots, so that stores fill.

The worker of a run has a temper: some runs land and report each transfer soon, others keep many under way, so that
slots are held for long. The keys are about as many as the slots, or a few times as many.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from kvproof.check.oracle.store.judge import StoreJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.store import StoreConfig, StoreSubject, path_to
from kvproof.check.search.operations_by_kind import DrawnRun, do_nothing
from kvproof.check.search.worlds import Sizes, draw_sizes, has_large_sizes, log_uniform
from kvproof.spec.trace import Operation

RUN_LENGTH = 60
NUM_TRANSFERS = (1, 2, 3, 6)  # under way at once, at most; in some runs more, which stay long
MANY_TRANSFERS, MANY_TRANSFERS_SHARE = (12, 24), 1 / 16
MANY_STAY_LONG = {"begin_load": 3.0, "land": 0.1, "report": 0.1}  # weights of such a run
NUM_REQUESTS = (1, 2, 4)
NUM_PARTS = (1, 2, 3)  # readers of a load
KEYS_PER_SLOT = (1.0, 1.5, 2.0, 4.0)
RUN_OF_KEYS_SHARE = 0.5  # of the lists of keys: those that are consecutive numbers
FAILED_SHARE = 0.15  # of the stores: those that fail for some keys
WEIGHTS = {
    "look_up": (0.0, 0.2, 0.5),
    "begin_store": (1.0, 2.0),
    "begin_load": (0.3, 1.0, 2.0),
    "land": (0.5, 1.0, 3.0),
    "report": (0.5, 1.0, 3.0),
    "notice": (1.0, 2.0),
    "touch": (0.0, 0.3, 1.0),
    "finish": (0.0, 0.1, 0.4),
    "wait": (0.2, 0.5),
    "evict": (0.3, 1.0),
    "clear": (0.0, 0.0, 0.03),
}


def draw_config(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
) -> StoreConfig:
    """A configuration that the store should accept; `fixed` fields are kept."""
    drawn: dict[str, Any] = {"num_gpu_blocks": sizes(random)[1]}
    if len(capabilities.replacements) > 1:
        drawn["replacement"] = random.choice(capabilities.replacements)
    if capabilities.lazy_stores:
        drawn["lazy_stores"] = random.random() < 0.5
    if capabilities.parts:
        drawn["num_parts"] = random.choice(NUM_PARTS)
    return StoreConfig(**(drawn | (fixed or {})))


class StoreOperations(DrawnRun):
    """Draws the operations of one run."""

    judge: StoreJudge

    def __init__(
        self, subject: StoreSubject, random: Random, config: StoreConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = StoreJudge(subject, config)
        can, pick = capabilities_of(subject), random.choice
        self.draw_weights(self.judge.kinds, WEIGHTS, config, can, without)
        slots, is_large = config.num_gpu_blocks, has_large_sizes(config)
        self.num_keys = max(2, int(slots * pick(KEYS_PER_SLOT)) + 1)
        self.longest = max(1, min(slots + 1, pick((2, 8, 40, 200)) if is_large else pick((2, 3, 5))))
        self.num_transfers_max, self.num_requests_max = pick(NUM_TRANSFERS), pick(NUM_REQUESTS)
        if random.random() < MANY_TRANSFERS_SHARE:
            self.num_transfers_max = pick(MANY_TRANSFERS)
            self.weights |= {kind: weight for kind, weight in MANY_STAY_LONG.items() if self.weights[kind]}
        self.num_transfers = self.num_requests = 0
        self.pause: Callable[[], None] = do_nothing

    def candidates(self) -> dict[str, list[int]]:
        """The kinds of operation that may be drawn now, each with what it may be about."""
        judge = self.judge
        moving, landed = judge.moving(), judge.landed()
        kinds: dict[str, list[int]] = {"look_up": [], "touch": [], "wait": [], "evict": [], "clear": []}
        if len(moving) + len(landed) < self.num_transfers_max:
            kinds["begin_store"] = []
            if judge.loadable():
                kinds["begin_load"] = []
        if moving:
            kinds["land"] = moving
        if landed:
            kinds["report"] = landed
        if done := judge.store.done():
            kinds["notice"] = done
        if judge.requests:
            kinds["finish"] = list(judge.requests)
        return kinds

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these."""
        random = self.random
        match kind:
            case "land":
                return self._landing(random.choice(about))
            case "report" | "finish":
                return kind, random.choice(about)
            case "notice":
                return kind, random.choice(about), random.randrange(self.config.num_parts)
            case "clear":
                return (kind,)
            case "wait":
                return kind, random.randint(1, self.config.lease_seconds + 1)
            case "evict":
                return kind, self._keys()
            case "look_up" | "touch":
                return kind, self._request(), self._keys()
        self.num_transfers += 1
        keys = self._keys() if kind == "begin_store" else self._loadable_keys()
        return kind, self.num_transfers, self._request(), keys

    def _landing(self, transfer: int) -> Operation:
        one = self.judge.transfers[transfer]
        if one.is_load or self.random.random() >= FAILED_SHARE:
            return "land", transfer
        places = range(len(one.keys))
        failed = sorted(self.random.sample(places, self.random.randint(1, len(places)))) if places else []
        return ("land", transfer, tuple(failed)) if failed else ("land", transfer)

    def _request(self) -> int:
        """A request that is there, or a new one."""
        requests = list(self.judge.requests)
        if requests and (len(requests) >= self.num_requests_max or self.random.random() < 0.7):
            return self.random.choice(requests)
        self.num_requests += 1
        return self.num_requests

    def _count(self) -> int:
        return log_uniform(self.random, 1, self.longest) if self.longest > 8 else self.random.randint(1, self.longest)

    def _keys(self) -> tuple[int, ...]:
        """Different keys, each of which may be there already."""
        if self.judge.capabilities.paths:
            return path_to(self.random.randrange(self.num_keys))
        number = min(self._count(), self.num_keys)
        if self.random.random() < RUN_OF_KEYS_SHARE:
            first = self.random.randrange(self.num_keys - number + 1)
            return tuple(range(first, first + number))
        return tuple(self.random.sample(range(self.num_keys), number))

    def _loadable_keys(self) -> tuple[int, ...]:
        keys = self.judge.loadable()
        if self.judge.capabilities.paths:
            return path_to(self.random.choice(keys))
        return tuple(self.random.sample(keys, min(self._count(), len(keys))))
