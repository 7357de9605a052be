"""vLLM V1 0.33.0: with a draft model and KV groups of two block sizes, a window shortens a hit that is all cached.

The model has layers with full attention, with blocks of 2 tokens, and layers with a sliding window, with blocks of 1
token; a hit ends at a multiple of 2. A request computes 8 tokens, and a longer prompt begins with the same ones. The
full attention finds 8 tokens and drops its last block, so that a hit of 6 tokens is left. The window needs the block
after these, too, and has it; the run of blocks is shorter than the window, because the prompt begins within it.
`SlidingWindowManager.find_longest_cache_hit` then rounds the 7 tokens that it found down to 6, drops a block of them,
and rounds 5 down to 4. It should drop the block first: where the run is as long as the window, it does.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import hashlib
import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

FULL_SIZE, WINDOW_SIZE, WINDOW = 2, 1, 9


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class or a function with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


def content_hash(value: Any) -> bytes:
    """A hash of the contents of a block."""
    return hashlib.sha256(repr(value).encode()).digest()


def request(name: str, num_tokens: int) -> Any:
    """A request whose tokens are all 0, with what the manager reads of it."""
    made = SimpleNamespace(
        request_id=name,
        all_token_ids=[0] * num_tokens,
        num_tokens=num_tokens,
        num_prompt_tokens=num_tokens,
        num_computed_tokens=0,
        num_preemptions=0,
        num_in_flight_tokens=0,
        shared_prefix_boundary=0,
        status=None,
        sampling_params=SimpleNamespace(prompt_logprobs=None),
        pooling_params=None,
        skip_reading_prefix_cache=False,
        prompt_embeds=None,
        lora_request=None,
        cache_salt=None,
        mm_features=[],
        block_hashes=[],
    )
    made.block_hashes = kv_cache_utils.get_request_block_hasher(WINDOW_SIZE, content_hash)(made)
    return made


def group(name: str, kind: Any, block_size: int) -> Any:
    """A KV cache group of one layer."""
    sizes = {"block_size": block_size, "num_kv_heads": 1, "head_size": 8, "sliding_window": None}
    if kind is SlidingWindowSpec:
        sizes["sliding_window"] = WINDOW
    return KVCacheGroupSpec([name], with_options(kind, **sizes, dtype=torch.float16))


with_options(kv_cache_utils.init_none_hash, hash_fn=content_hash)
groups = [group("full", FullAttentionSpec, FULL_SIZE), group("window", SlidingWindowSpec, WINDOW_SIZE)]
config = with_options(KVCacheConfig, num_blocks=32, kv_cache_tensors=[], kv_cache_groups=groups)
manager = with_options(
    KVCacheManager,
    kv_cache_config=config,
    max_model_len=64,
    scheduler_block_size=FULL_SIZE,
    hash_block_size=WINDOW_SIZE,
    enable_caching=True,
    use_eagle=True,
)

first = request("first", 8)
found, num_hit, *_ = manager.get_computed_blocks(first)
manager.allocate_slots(first, first.num_tokens, num_hit, found)

again = request("again", 9)
found, num_hit, *_ = manager.get_computed_blocks(again)
print(f"{num_hit} of {again.num_tokens} tokens are hit")
if num_hit < first.num_tokens - FULL_SIZE:
    sys.exit(f"a draft model drops one block of 8 cached tokens, so 6 are to be hit; {num_hit} are")
