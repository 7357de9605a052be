"""The operations of a random run of a cache of encoder outputs: a few requests with images that they share.

Requests look for the outputs of their next inputs, a few at a time, as chunks of a prompt do. Some runs have steps with
a small budget, and some have many operations within a step, so that requests are preempted in the step that takes.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from kvproof.check.oracle.encoder.judge import EncoderJudge
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.encoder import EncoderConfig, EncoderSubject
from kvproof.check.search.operations_by_kind import DrawnRun, do_nothing
from kvproof.check.search.worlds import Sizes, draw_sizes
from kvproof.spec.trace import Operation

RUN_LENGTH = 60
NUM_EMBEDDINGS_MAX = 24
LONGEST_OUTPUTS = (1, 2, 3, 4, 8)
NUM_REQUESTS = (1, 2, 3, 6)  # at a time, at most
NUM_IMAGES = (1, 2, 4)  # of a request, at most
CONTENTS_PER_EMBEDDING = (0.5, 1.0, 2.0)
SMALL_BUDGET_SHARE = 0.2
SKIPPING_SHARE = 0.1  # of the chunks: those that do not begin at the first input that was not read
WEIGHTS = {
    "bring": (1.0, 2.0),
    "encode": (2.0, 4.0),
    "encode_in_vain": (0.0, 0.3, 1.0),
    "read_inputs": (0.3, 1.0, 2.0),
    "put_back": (0.1, 0.5, 1.5),
    "leave": (0.3, 1.0),
    "end_step": (0.5, 1.0, 3.0),
    "forget_outputs": (0.0, 0.0, 0.1),
}


def draw_config(
    random: Random, capabilities: Capabilities, fixed: dict[str, Any] | None = None, sizes: Sizes = draw_sizes
) -> EncoderConfig:
    """A configuration of small sizes; `fixed` fields are kept."""
    drawn: dict[str, Any] = {
        "num_gpu_blocks": min(sizes(random)[1], NUM_EMBEDDINGS_MAX),
        "longest_output": random.choice(LONGEST_OUTPUTS),
    }
    return EncoderConfig(**(drawn | (fixed or {})))


class EncoderOperations(DrawnRun):
    """Draws the operations of one run."""

    judge: EncoderJudge

    def __init__(
        self, subject: EncoderSubject, random: Random, config: EncoderConfig, without: frozenset[str] = frozenset()
    ) -> None:
        self.random, self.config = random, config
        self.judge = EncoderJudge(subject, config)
        can, pick = capabilities_of(subject), random.choice
        self.draw_weights(self.judge.kinds, WEIGHTS, config, can, without)
        self.num_requests_max, self.num_images_max = pick(NUM_REQUESTS), pick(NUM_IMAGES)
        self.num_contents = max(2, round(config.num_embeddings * pick(CONTENTS_PER_EMBEDDING)))
        self.num_requests = 0
        self.read: dict[int, int] = {}  # of each request, the first input that it has not read
        self.pause: Callable[[], None] = do_nothing

    def candidates(self) -> dict[str, list[int]]:
        """The kinds of operation that may be drawn now, each with what it may be about."""
        kinds = {kind: about for kind, about in self.judge.enabled().items() if kind in self.weights}
        if len(self.judge.explained.inputs) >= self.num_requests_max:
            kinds.pop("bring", None)
        return kinds

    def concrete(self, kind: str, about: list[int]) -> Operation:
        """An operation of the kind, about one of these."""
        random = self.random
        if kind == "bring":
            self.num_requests += 1
            number = random.randint(1, self.num_images_max)
            return kind, self.num_requests, tuple(random.randrange(self.num_contents) for _ in range(number))
        if not about:
            return (kind,)
        request = random.choice(about)
        if kind in ("encode", "encode_in_vain"):
            return kind, request, self._first(request), random.randint(1, self.num_images_max), self._budget()
        if kind == "read_inputs":
            return kind, request, random.randint(1, self.num_images_max)
        return kind, request

    def _first(self, request: int) -> int:
        """The first input of a chunk: the first that is referenced or was not read, or in some chunks any."""
        explained = self.judge.explained
        last = len(explained.inputs[request]) - 1
        if self.random.random() < SKIPPING_SHARE:
            return self.random.randint(0, last)
        places = explained.places_of(request)
        return min(last, self.random.choice((places[0], places[-1], places[-1] + 1)) if places else 0)

    def _budget(self) -> int:
        longest = self.config.longest_output
        return self.random.randint(0, longest) if self.random.random() < SMALL_BUDGET_SHARE else 4 * longest
