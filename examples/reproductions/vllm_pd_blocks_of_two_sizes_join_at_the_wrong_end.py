"""vLLM NIXL in pull mode, 0.28.0 to 0.33.0: with blocks of two sizes and a local hit, KV arrives a block too late.

Prefill has blocks of 4 tokens and decode blocks of 8. A prompt of 12 tokens has three blocks of prefill. Decode has the
first 8 tokens in its prefix cache, and reads the others into one block of its own, which is two halves as large as a
block of prefill. `_map_block_ids_for_block_size_ratio` cuts a list of halves to the number of prefill's blocks, and
here that is no cut: there are two halves and three blocks. `_apply_prefix_caching` then takes the last two blocks of
prefill, because there are two halves. So the first half gets tokens 4 to 7, and the second one tokens 8 to 11, though
the first one is where tokens 8 to 11 belong. Decode computes with the KV of other positions, and nothing says so.

It happens whenever the blocks of prefill do not fill the last one of decode, and decode has a hit. Without a hit, the
same calls are right. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if, nothing
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.v1.kv_cache_interface import FullAttentionSpec

RATIO, SIZE = 2, 4  # a block of decode is two of prefill's, which have 4 tokens
OF_PREFILL = [100, 101, 102]  # its blocks of tokens 0 to 3, 4 to 7 and 8 to 11

worker: Any = type("Worker", (NixlPullConnectorWorker,), {"__init__": nothing, "__del__": nothing})()
worker._group_spec_types, worker._has_mamba = (FullAttentionSpec,), False


def pairs(blocks: list[int], hit: int) -> list[tuple[int, int]]:
    """For each block of prefill that decode reads: the first token that belongs there, and the first that comes.

    blocks: those of decode that it wants filled. hit: how many tokens it has before them.
    """
    local, remote = worker._map_block_ids_for_block_size_ratio([blocks], [OF_PREFILL], RATIO)
    local, remote = worker._apply_prefix_caching(
        decode_block_ids=local,
        prefill_block_ids=remote,
        decode_physical_per_logical=1,
        prefill_physical_per_logical=1,
    )
    halves = [half - blocks[0] * RATIO for half in local[0]]
    firsts = [(block - OF_PREFILL[0]) * SIZE for block in remote[0]]
    return [(hit + half * SIZE, int(first)) for half, first in zip(halves, firsts, strict=True)]


for blocks, hit in (([5, 6], 0), ([5], 8)):
    found = pairs(blocks, hit)
    for wanted, first in found:
        print(
            f"with a hit of {hit} tokens, where tokens {wanted} to {wanted + SIZE - 1} belong come those from {first}"
        )
    fault_if(any(wanted != first for wanted, first in found), "decode reads the KV of other positions")
