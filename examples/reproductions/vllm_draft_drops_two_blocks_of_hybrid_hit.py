"""vLLM V1, 0.9.1 to 0.19.1: with full attention beside a window and EAGLE, a hit is one block shorter than it could be.

A draft model needs the last block of a hit computed again, so the manager drops it. In a model with full attention and
sliding windows, the manager of the full attention drops the last block that it found. The window is then looked up
within what is left, and its manager drops another block. The blocks that are dropped twice are computed again; no
answer is wrong. Repaired in 0.20.0: each group drops a block once (issue 32802).

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

BLOCK_SIZE, WINDOW, NUM_CACHED = 2, 3, 8


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
        mm_inputs=[],
        mm_positions=[],
        mm_hashes=[],
        has_encoder_inputs=False,
        block_hashes=[],
    )
    if hasattr(kv_cache_utils, "get_request_block_hasher"):
        made.block_hashes = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, content_hash)(made)
    return made


def group(name: str, kind: Any, **options: Any) -> Any:
    """A KV cache group of one layer."""
    sizes = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 8, "dtype": torch.float16, "use_mla": False}
    return KVCacheGroupSpec([name], with_options(kind, **sizes, **options))


if hasattr(kv_cache_utils, "init_none_hash"):
    with_options(kv_cache_utils.init_none_hash, hash_fn=content_hash)
groups = [group("full", FullAttentionSpec), group("window", SlidingWindowSpec, sliding_window=WINDOW)]
manager = with_options(
    KVCacheManager,
    kv_cache_config=with_options(KVCacheConfig, num_blocks=32, kv_cache_tensors=[], kv_cache_groups=groups),
    max_model_len=64,
    scheduler_block_size=BLOCK_SIZE,
    hash_block_size=BLOCK_SIZE,
    enable_caching=True,
    use_eagle=True,
)

first = request("first", NUM_CACHED)
found, num_hit, *_ = manager.get_computed_blocks(first)
manager.allocate_slots(first, first.num_tokens, num_hit, found)

found, num_hit, *_ = manager.get_computed_blocks(request("again", NUM_CACHED + 1))
print(f"{NUM_CACHED} tokens are cached in blocks of {BLOCK_SIZE}; {num_hit} are hit")
if num_hit < NUM_CACHED - BLOCK_SIZE:
    sys.exit(f"a draft model drops one block, so {NUM_CACHED - BLOCK_SIZE} tokens are to be hit")
