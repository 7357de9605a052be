"""vLLM V1, up to 0.28.0: an image that a request has twice is given up when the request has read the first of them.

A request has the same image at two places. It references the output of the encoder once, whatever the number of places.
When its tokens have passed the first place, `free_encoder_input` drops this reference, and another image may take the
room before the tokens of the second place are computed. From 0.29.0 on the reference stays until the last place is read
(pull request 54284). Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import StandIn, fault_if
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

manager = EncoderCacheManager(1)


def request_with(name: str, *images: str) -> Any:
    """A request with images, each with one embedding."""
    features = [StandIn(identifier=image) for image in images]
    length: Any = lambda index: 1  # noqa: E731
    return StandIn(request_id=name, mm_features=features, get_num_encoder_embeds=length, get_num_encoder_tokens=length)


request = request_with("first", "a cat", "a cat")
assert not manager.check_and_update_cache(request, 0)
assert manager.can_allocate(request, 0, 100, 0)
manager.allocate(request, 0)
manager.check_and_update_cache(request, 1)
manager.get_freed_mm_hashes()  # the step is executed
manager.free_encoder_input(request, 0)  # the tokens of the first cat are computed
has_room = manager.can_allocate(request_with("second", "a dog"), 0, 100, 0)
print(f"another image gets the room: {has_room}; the manager has {sorted(manager.cached)}")
fault_if(has_room, "the image is evicted, and the request has not read it at its second place")
