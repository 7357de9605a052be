"""vLLM V1, 0.13.0 to 0.27.1: an image is evicted and computed again in one step, and the worker drops it.

`EncoderCacheManager` has room for one image, which nobody uses any more. In one step another image takes its place, the
request with that one is preempted, and a third request has the first image again: it is computed, and is cached.
`get_freed_mm_hashes` still names it, since it was evicted in this step, and the worker drops it. Later requests count
it as cached. From 0.28.0 on it is left out (pull request 52482). Run it with the vLLM that is to be tried: exit code 1
if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

manager = EncoderCacheManager(1)


def request_with(image: str, name: str) -> Any:
    """A request with one image, which has a place in the cache; the image is computed if it was not there."""
    request = StandIn(request_id=name, mm_features=[StandIn(identifier=image)], get_num_encoder_embeds=lambda index: 1)
    if not manager.check_and_update_cache(request, 0):
        assert manager.can_allocate(request, 0, 100, 0)
        manager.allocate(request, 0)
    return request


manager.free(request_with("a cat", "first"))
manager.get_freed_mm_hashes()  # a step ends
manager.free(request_with("a dog", "second"))  # evicts the cat; the request is preempted in the same step
request_with("a cat", "third")
dropped = manager.get_freed_mm_hashes()
print(f"the worker shall drop {dropped}; the manager has {sorted(manager.cached)}")
fault_if("a cat" in dropped, "an image is dropped after it was computed, and counts as cached")
