"""vLLM V1, 0.9.1 to 0.18.1: a block that begins where an image ends has one key in a prompt, and another later.

The keys of the blocks of a prompt are made one after the other: an image that ended with the block before is passed
over. While tokens are generated, the key of a new block is made alone, from the last image on, which is searched by
`<` where it should be `<=`: an image that ends where the block begins still counts. A prompt that repeats the answer
does not find the block. No answer is wrong; the block is computed again. Repaired in 0.19.0.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

BLOCK_SIZE = 2


def request() -> Any:
    """A request of two blocks, the first of which is an image."""
    position = SimpleNamespace(offset=0, length=BLOCK_SIZE)
    image = SimpleNamespace(identifier="hash of the image", mm_position=position)
    return SimpleNamespace(
        mm_features=[image],
        mm_positions=[position],
        mm_hashes=[image.identifier],
        lora_request=None,
        cache_salt=None,
        prompt_embeds=None,
        prompt_token_ids=[7] * (2 * BLOCK_SIZE),
    )


def second_key(image_index: int) -> Any:
    """The extra keys of the second block, where the search begins with this image."""
    return generate_block_hash_extra_keys(request(), BLOCK_SIZE, 2 * BLOCK_SIZE, image_index)[0]


_, next_image = generate_block_hash_extra_keys(request(), 0, BLOCK_SIZE, 0)
in_prompt, in_answer = second_key(next_image), second_key(-1)
print(f"the second block has the keys {in_prompt} in a prompt, and {in_answer} in an answer")
if in_prompt != in_answer:
    sys.exit("the keys differ, so a prompt that repeats the answer does not find the block")
