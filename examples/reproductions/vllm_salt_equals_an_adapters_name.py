"""vLLM V1, up to 0.30.0: the key of a block does not say which of its names is an adapter and which is a salt.

One prompt is computed with a LoRA adapter. Another one has the same tokens, no adapter, and a cache salt that is the
name of the adapter. Both get one block hash, so that the second request reads the KV of the first one. From 0.31.0 on
each name in the key is marked as what it is.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import sys
from types import SimpleNamespace
from typing import Any

from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

BLOCK_SIZE = 2
NAME = "tenant-a"


def key_of(lora_request: Any, cache_salt: str | None) -> Any:
    """The extra keys of the first block of a prompt."""
    request = SimpleNamespace(
        mm_features=[], lora_request=lora_request, cache_salt=cache_salt, prompt_embeds=None, prompt_token_ids=[7, 7]
    )
    return generate_block_hash_extra_keys(request, 0, BLOCK_SIZE, 0)[0]


first = key_of(SimpleNamespace(lora_name=NAME, lora_path="/adapters/tenant-a", lora_int_id=1), None)
second = key_of(None, NAME)
print(f"with the adapter {NAME}: {first}")
print(f"with the salt {NAME}: {second}")
if first == second:
    sys.exit("the keys are equal: the second request would read the KV that was computed with the adapter")
