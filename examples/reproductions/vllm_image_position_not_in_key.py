"""vLLM V1, up to 0.18.1: the key of a block has the images in it, but not where in the block they begin.

Two prompts have the same tokens and the same image, at another position. The token where the first prompt has the image
is ordinary text in the second one, which may contain the placeholder token. Both get one block hash, so that the second
request reads the KV of the first one. Repaired in 0.19.0 (pull request 36708). Run it with the vLLM that is to be
tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import image_at, stand_in_request
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

first, second = (
    generate_block_hash_extra_keys(stand_in_request("one block", [7, 7], **image_at(offset, length=1)), 0, 2, 0)[0]
    for offset in (0, 1)
)
print(f"tokens 7 7, the image at position 0: {first}")
print(f"tokens 7 7, the image at position 1: {second}")
fault_if(first == second, "the keys are equal: the second request would read the KV of the first one")
