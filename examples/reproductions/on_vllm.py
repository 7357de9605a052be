"""vLLM's V1 managers, called without a model: what the scripts for vLLM share."""

import hashlib
from typing import Any

import torch
from on_any_engine import StandIn, nothing, same, with_options
from vllm.v1 import kv_cache_interface
from vllm.v1.core import kv_cache_utils


def spec(kind: str = "FullAttentionSpec", block_size: int = 2, **more: Any) -> Any:
    """What layers of one kind keep of each block."""
    sizes: dict[str, Any] = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float16, "use_mla": False}
    sizes |= {"shapes": ((1,),), "dtypes": (torch.float16,), "mamba_cache_mode": "align"}  # of states
    return with_options(getattr(kv_cache_interface, kind), block_size=block_size, **sizes | more)


def kv_config(num_blocks: int, *specs: Any, **more: Any) -> Any:
    """A pool of blocks, one of which is the null block, and a KV cache group of one layer for each kind."""
    groups = [kv_cache_interface.KVCacheGroupSpec([f"layer {n}"], one) for n, one in enumerate(specs)]
    options = {"num_blocks": num_blocks, "tensors": {}, "kv_cache_tensors": [], "kv_cache_groups": groups}
    return with_options(kv_cache_interface.KVCacheConfig, **options | more)


def content_hash(value: Any) -> bytes:
    """A hash of the contents of a block."""
    return hashlib.sha256(repr(value).encode()).digest()


with_options(getattr(kv_cache_utils, "init_none_hash", nothing), hash_fn=content_hash)


def hasher_of(block_size: int) -> Any:
    """What computes the hashes of a request's blocks; before 0.10.1 the manager does."""
    get_hasher = getattr(kv_cache_utils, "get_request_block_hasher", None)
    return get_hasher(block_size, content_hash) if get_hasher else lambda request: []


def new_manager(config: Any, hash_block_size: int = 2, scheduler_block_size: int = 2, use_eagle: bool = False) -> Any:
    """A KV cache manager with a prefix cache."""
    from vllm.v1.core.kv_cache_manager import KVCacheManager  # scripts for the scheduler come without it

    return with_options(
        KVCacheManager,
        kv_cache_config=config,
        max_model_len=64,
        scheduler_block_size=scheduler_block_size,
        hash_block_size=hash_block_size,
        enable_caching=True,
        use_eagle=use_eagle,
    )


def stand_in_request(name: str, tokens: list[int], block_size: int = 2, **more: Any) -> Any:
    """What a manager reads of a request; its blocks have hashes."""
    fields = {"request_id": name, "all_token_ids": tokens, "prompt_token_ids": tokens}
    fields |= same(len(tokens), "num_tokens num_prompt_tokens")
    fields |= same(0, "num_computed_tokens num_preemptions num_in_flight_tokens shared_prefix_boundary")
    fields |= same(None, "status pooling_params prompt_embeds lora_request cache_salt session_id")
    fields |= same(False, "skip_reading_prefix_cache has_encoder_inputs")
    fields |= same([], "mm_features mm_inputs mm_positions mm_hashes spec_token_ids block_hashes")
    request = StandIn(sampling_params=StandIn(prompt_logprobs=None), **fields | more)
    request.block_hashes = hasher_of(block_size)(request)
    return request


def image_at(offset: int, length: int) -> dict[str, Any]:
    """The fields of a request that has one image, at this position."""
    position = StandIn(offset=offset, length=length)
    image = StandIn(identifier="hash of the image", mm_position=position)
    return {"mm_features": [image], "mm_positions": [position], "mm_hashes": [image.identifier]}


def serve(manager: Any, request: Any) -> Any:
    """Look a request up in the prefix cache, and give it all its blocks. Returns how many of its tokens were hit."""
    found, num_hit, *_ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, request.num_tokens - num_hit, *([num_hit, found] if num_hit else []))
    return num_hit
