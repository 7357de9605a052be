"""vLLM V1, 0.9.1 to 0.18.1: a block that begins where an image ends has one key in a prompt, and another later.

The keys of the blocks of a prompt are made one after the other: an image that ended with the block before is passed
over. While tokens are generated, the key of a new block is made alone, from the last image on, which is searched by `<`
where it should be `<=`: an image that ends where the block begins still counts. A prompt that repeats the answer does
not find the block. No answer is wrong; the block is computed again. Repaired in 0.19.0. Run it with the vLLM that is to
be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm import image_at, stand_in_request
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

BLOCK_SIZE = 2

request = stand_in_request("two blocks, the first is an image", [7] * (2 * BLOCK_SIZE), **image_at(0, BLOCK_SIZE))


def second_key(image_index: int) -> Any:
    """The extra keys of the second block, where the search begins with this image."""
    return generate_block_hash_extra_keys(request, BLOCK_SIZE, 2 * BLOCK_SIZE, image_index)[0]


_, next_image = generate_block_hash_extra_keys(request, 0, BLOCK_SIZE, 0)
in_prompt, in_answer = second_key(next_image), second_key(-1)
print(f"the second block has the keys {in_prompt} in a prompt, and {in_answer} in an answer")
fault_if(in_prompt != in_answer, "the keys differ, so a prompt that repeats the answer does not find the block")
