"""vLLM V1, up to 0.8.5: with a sliding window and EAGLE, a request is hit without a block that its window needs.

A look-up with a window searches for as many blocks as the window needs, one after another. With EAGLE, the manager then
drops the last of them, so that one is missing at the beginning: the window reaches back to an entry of the table that
is the null block, and attention reads what happens to be there. Repaired in 0.9.0: it searches for one block more.

Run it with the vLLM that is to be tried. It needs no GPU and no model, and ends with exit code 1 if the fault is there.
"""

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec

BLOCK_SIZE, WINDOW = 2, 4


def with_options(kind: Any, **options: Any) -> Any:
    """Call a class with those of the options that it takes."""
    return kind(**{name: value for name, value in options.items() if name in inspect.signature(kind).parameters})


def request(name: str, num_tokens: int) -> Any:
    """A request whose tokens are all 0, with what the manager reads of it."""
    return SimpleNamespace(
        request_id=name,
        all_token_ids=[0] * num_tokens,
        num_tokens=num_tokens,
        num_prompt_tokens=num_tokens,
        num_computed_tokens=0,
        sampling_params=SimpleNamespace(prompt_logprobs=None),
        lora_request=None,
        cache_salt=None,
        mm_inputs=[],
        mm_positions=[],
        mm_hashes=[],
        spec_token_ids=[],
    )


spec = with_options(
    SlidingWindowSpec,
    block_size=BLOCK_SIZE,
    num_kv_heads=1,
    head_size=8,
    dtype=torch.float16,
    use_mla=False,
    sliding_window=WINDOW,
)
groups = [KVCacheGroupSpec(["layer"], spec)]
config = with_options(KVCacheConfig, num_blocks=16, tensors={}, kv_cache_tensors=[], kv_cache_groups=groups)
manager = KVCacheManager(kv_cache_config=config, max_model_len=64, enable_caching=True, use_eagle=True)

first = request("first", 6)
manager.get_computed_blocks(first)
manager.allocate_slots(first, 6)

found, num_hit = manager.get_computed_blocks(request("second", 7))
null = manager.block_pool.null_block
blocks: list[Any] = getattr(found, "blocks", found)
ids = ["null" if block is null else block.block_id for block in blocks]
print(f"{num_hit} tokens are hit, in blocks {ids}")
needed = range(max(0, num_hit - WINDOW + 1) // BLOCK_SIZE, num_hit // BLOCK_SIZE)
missing = [index for index in needed if ids[index] == "null"]
if missing:
    sys.exit(f"the token at position {num_hit} attends to the {WINDOW} last tokens; entries {missing} have no block")
