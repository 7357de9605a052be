"""vLLM V1, up to 0.18.1: the key of a block has the images in it, but not where in the block they begin.

Two prompts have the same tokens and the same image, at another position. The token where the first prompt has the image
is ordinary text in the second one, which may contain the placeholder token. Both get one block hash, so that the second
request reads the KV of the first one. Repaired in 0.19.0 (pull request 36708).

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

BLOCK_SIZE = 2


def key_with_image_at(offset: int) -> Any:
    """The extra keys of the first block of a prompt with one image, which takes one position."""
    position = SimpleNamespace(offset=offset, length=1)
    image = SimpleNamespace(identifier="hash of the image", mm_position=position)
    request = SimpleNamespace(
        mm_features=[image], lora_request=None, cache_salt=None, prompt_embeds=None, prompt_token_ids=[7, 7]
    )
    return generate_block_hash_extra_keys(request, 0, BLOCK_SIZE, 0)[0]


first, second = key_with_image_at(0), key_with_image_at(1)
print(f"tokens 7 7, the image at position 0: {first}")
print(f"tokens 7 7, the image at position 1: {second}")
if first == second:
    sys.exit("the keys are equal: the second request would read the KV of the first one")
