"""vLLM V1 0.9.2: a sliding window that is no wider than a block stops the engine if the prefix cache is on.

A request grows into a block that it fills. The window has left the block before, so that the table has the null block
there. `cache_full_blocks` takes the hash of the block before from the table; the null block has none, and an assertion
fails. A window of one block is enough; the script has blocks of two tokens and a window of two. Repaired in 0.10.1.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

BLOCK_SIZE, WINDOW, NUM_TOKENS = 2, 2, 12


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class or a function with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


with_options(getattr(kv_cache_utils, "init_none_hash", lambda: None), hash_fn=hash)
spec = with_options(
    SlidingWindowSpec,
    block_size=BLOCK_SIZE,
    num_kv_heads=1,
    head_size=8,
    dtype=torch.float16,
    use_mla=False,
    sliding_window=WINDOW,
)
config = with_options(
    KVCacheConfig,
    num_blocks=16,
    tensors={},
    kv_cache_tensors=[],
    kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
)
manager = KVCacheManager(kv_cache_config=config, max_model_len=64, enable_caching=True)

request = SimpleNamespace(
    request_id="request",
    all_token_ids=list(range(NUM_TOKENS)),
    num_tokens=NUM_TOKENS,
    num_prompt_tokens=NUM_TOKENS,
    num_computed_tokens=0,
    sampling_params=SimpleNamespace(prompt_logprobs=None),
    lora_request=None,
    cache_salt=None,
    mm_positions=[],
    mm_hashes=[],
    block_hashes=[],
)
if hasattr(kv_cache_utils, "get_request_block_hasher"):  # from 0.10.1 on, requests carry their hashes
    request.block_hashes = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, hash)(request)

manager.get_computed_blocks(request)
for num_computed in range(NUM_TOKENS):  # a chunk of one token in each step
    request.num_computed_tokens = num_computed
    try:
        manager.allocate_slots(request, 1)
    except AssertionError:
        sys.exit(f"a window of {WINDOW} tokens and blocks of {BLOCK_SIZE}: no slot for token {num_computed}")
print(f"all {NUM_TOKENS} tokens got their slots")
