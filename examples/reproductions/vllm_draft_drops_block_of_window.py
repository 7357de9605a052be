"""vLLM V1, up to 0.8.5: with a sliding window and EAGLE, a request is hit without a block that its window needs.

A look-up with a window searches for as many blocks as the window needs, one after another. With EAGLE, the manager then
drops the last of them, so that one is missing at the beginning: the window reaches back to an entry of the table that
is the null block, and attention reads what happens to be there. Repaired in 0.9.0: it searches for one block more. Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from typing import Any

from on_any_engine import fault_if
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

BLOCK_SIZE, WINDOW = 2, 4

manager = new_manager(kv_config(16, spec("SlidingWindowSpec", sliding_window=WINDOW)), use_eagle=True)
serve(manager, stand_in_request("first", [0] * 6))
found, num_hit = manager.get_computed_blocks(stand_in_request("second", [0] * 7))
null = manager.block_pool.null_block
blocks: list[Any] = getattr(found, "blocks", found)
ids = ["null" if block is null else block.block_id for block in blocks]
print(f"{num_hit} tokens are hit, in blocks {ids}")
needed = range(max(0, num_hit - WINDOW + 1) // BLOCK_SIZE, num_hit // BLOCK_SIZE)
missing = [index for index in needed if ids[index] == "null"]
fault_if(missing, f"token {num_hit} attends to the {WINDOW} last tokens; entries {missing} have no block")
