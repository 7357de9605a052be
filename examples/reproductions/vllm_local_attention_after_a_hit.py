"""vLLM V1 0.10.0: a prompt that is repeated stops the engine if a model has chunked local attention.

The model has layers with full attention and layers with local attention, in chunks. A request computes a prompt that is
a little longer than a chunk, and ends. The same prompt comes again, and all of its first chunk is hit. The layers with
local attention need no block of that chunk, so their table begins with null blocks. `cache_full_blocks` then takes the
hash of the block before the first new one from the table; the null block has none, and an assertion fails. Repaired in
0.10.1.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec, FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

BLOCK_SIZE, CHUNK = 2, 4


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class or a function with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


def request(name: str, num_tokens: int) -> Any:
    """A request whose tokens are all 0, with what the manager reads of it."""
    made = SimpleNamespace(
        request_id=name,
        all_token_ids=[0] * num_tokens,
        num_tokens=num_tokens,
        num_prompt_tokens=num_tokens,
        num_computed_tokens=0,
        sampling_params=SimpleNamespace(prompt_logprobs=None),
        lora_request=None,
        cache_salt=None,
        mm_positions=[],
        mm_hashes=[],
        block_hashes=[],
    )
    if hasattr(kv_cache_utils, "get_request_block_hasher"):  # from 0.10.1 on, requests carry their hashes
        made.block_hashes = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, hash)(made)
    return made


def spec(kind: Any) -> Any:
    """The layers of one KV cache group."""
    sizes = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 8, "attention_chunk_size": None}
    if kind is ChunkedLocalAttentionSpec:
        sizes["attention_chunk_size"] = CHUNK
    return with_options(kind, **sizes, dtype=torch.float16, use_mla=False)


with_options(kv_cache_utils.init_none_hash, hash_fn=hash)
groups = [KVCacheGroupSpec(["full"], spec(FullAttentionSpec))]
groups.append(KVCacheGroupSpec(["local"], spec(ChunkedLocalAttentionSpec)))
config = with_options(KVCacheConfig, num_blocks=16, kv_cache_tensors=[], kv_cache_groups=groups)
manager = KVCacheManager(kv_cache_config=config, max_model_len=64, enable_caching=True)

first = request("first", CHUNK + BLOCK_SIZE)
manager.get_computed_blocks(first)
manager.allocate_slots(first, first.num_tokens)
manager.free(first)

again = request("again", CHUNK + BLOCK_SIZE)
found, num_hit = manager.get_computed_blocks(again)
print(f"{num_hit} of {again.num_tokens} tokens are hit")
try:
    manager.allocate_slots(again, again.num_tokens - num_hit, num_hit, found)
except AssertionError:
    sys.exit(f"a request that is hit as far as the end of a chunk of {CHUNK} tokens gets no slots: AssertionError")
