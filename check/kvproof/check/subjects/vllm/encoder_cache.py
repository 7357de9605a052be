"""vLLM V1's cache of encoder outputs, as a subject of encoder level: releases 0.11 to 0.33.

`EncoderCacheManager` is the release's own, called as its scheduler does: for each image of a chunk it looks the output
up, asks for room, and takes it when the tokens have their blocks. An image is a content with a hash of its own, and as
many embeddings as it says. The manager shows which requests reference an output, what is free and what can be evicted,
and from 0.14 on for which inputs a request holds a reference.

Before 0.28 the report could name what was computed again in the same step. The worker removes first and computes then,
so that this does no harm alone; but a request that is preempted in the step in which it took an output does not compute
it. So the adapter does not declare `reports_before_computing`.
"""

from typing import Any

from kvproof.check.protocol.capabilities import EncoderCan
from kvproof.check.protocol.encoder import EncoderConfig, EncoderObservation, Input
from kvproof.check.protocol.manager import Assumption
from kvproof.check.subjects.loading import download, partial_import
from kvproof.check.subjects.loading.stub_modules import StubObject, Unused
from kvproof.check.subjects.vllm.v1_loader import quiet_logger
from kvproof.spec.text.eviction_policy import KEY_LRU

MODULE = "v1.core.encoder_cache_manager"
STAND_INS: dict[str, dict[str, Any]] = {
    "config": {"VllmConfig": Unused},
    "config.ec_manager_config": {"EncoderCacheManagerMetadata": Unused},
    "logger": {"init_logger": quiet_logger},
    "multimodal": {"MultiModalRegistry": Unused},
    "v1.request": {"Request": Unused},
}
ASSUMPTIONS = (
    Assumption("asks-for-room", "The caller takes room only for outputs that are not there and for which there was."),
    Assumption("computes-what-it-takes", "What is taken in a step and still cached at its end is computed in it."),
    Assumption("reads-then-releases", "An output is released one by one only after the step that computes it."),
    Assumption("resets-between-steps", "The cache is reset between two steps, together with the worker."),
)


class FakeRequest(StubObject):
    """A request, as far as the manager reads one."""

    def __init__(self, request: int, inputs: list[Input]) -> None:
        features = [StubObject(identifier=str(one.content)) for one in inputs]
        super().__init__(request_id=str(request), mm_features=features, has_encoder_inputs=True)
        self.lengths = [one.length for one in inputs]

    def get_num_encoder_embeds(self, input_id: int) -> int:
        return self.lengths[input_id]

    get_num_encoder_tokens = get_num_encoder_embeds  # before 0.12, images had as many embeddings as tokens


class VllmEncoderCache:
    """`vllm.v1.core.encoder_cache_manager.EncoderCacheManager`."""

    assumptions: tuple[Assumption, ...] = ASSUMPTIONS

    def __init__(self, version: str) -> None:
        self.name = f"vllm-encoder-cache {version}"
        module = partial_import.mount("vllm", download.find("vllm", version), STAND_INS)
        self._class = module(MODULE).EncoderCacheManager
        self.capabilities = EncoderCan(
            reset=hasattr(self._class, "reset"), lost_hits=0, refusal_slack=0, eviction=KEY_LRU
        )

    def open(self, config: EncoderConfig) -> None:
        self._manager: Any = self._class(config.num_embeddings)
        self._requests: dict[int, FakeRequest] = {}

    def begin_request(self, request: int, inputs: list[Input]) -> None:
        self._requests[request] = FakeRequest(request, inputs)

    def has_output(self, request: int, place: int) -> bool:
        return bool(self._manager.check_and_update_cache(self._requests[request], place))

    def has_room(self, request: int, place: int, budget: int, num_taken: int) -> bool:
        return bool(self._manager.can_allocate(self._requests[request], place, budget, num_taken))

    def take_room(self, request: int, place: int) -> None:
        self._manager.allocate(self._requests[request], place)

    def release_output(self, request: int, place: int) -> None:
        self._manager.free_encoder_input(self._requests[request], place)

    def release_all(self, request: int) -> None:
        self._manager.free(self._requests[request])

    def end_request(self, request: int) -> None:
        self._manager.free(self._requests.pop(request))

    def take_dropped(self) -> list[int]:
        return [int(name) for name in self._manager.get_freed_mm_hashes()]

    def forget_outputs(self) -> None:
        self._manager.reset()

    def observe(self) -> EncoderObservation:
        manager = self._manager
        refs = {int(name): sorted(map(int, requests)) for name, requests in manager.cached.items()}
        kept = getattr(manager, "request_cached_ids", None)
        places = None if kept is None else {int(name): sorted(ids) for name, ids in kept.items()}
        return EncoderObservation(refs, manager.num_free_slots, manager.num_freeable_slots, places)
