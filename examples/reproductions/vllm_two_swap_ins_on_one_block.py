"""vLLM V0, 0.6.5 to 0.10.2: two requests that come back from the host in one step are copied into the same block.

With the prefix cache and preemption by swapping, a request comes back into a block, and its next token fills that
block. If a block of equal content is cached, the request takes the cached one and gives its own back at once
(`promote_to_immutable_block` in `vllm/core/block/prefix_caching_block.py`). The next request that comes back gets the
block that was given up, and the step has two copies into it. They are right only in the order of the list, which
nothing promises: in the other order, or side by side, the second request reads the KV of the first one. Run it with the
vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_v0 import Engine

engine = Engine(block_size=2, num_blocks=4, num_host_blocks=8, preemption_mode="swap", max_model_len=4)
host: dict[int, tuple[int, ...]] = {}  # the tokens whose KV each block holds
to_generate = [[1, 0, 0], [1, 0, 0], [0, 0, 0], [1, 0]]  # the tokens that each request generates


def step(is_in_order: bool) -> bool:
    """Do one step, with its swap-ins in the order of the list or in the other one. Returns whether it reads right."""
    metadata, outputs, _ = engine.scheduler.schedule()
    for source, target in outputs.blocks_to_swap_out:
        host[target] = engine.device[source]
    swap_in = list(outputs.blocks_to_swap_in)
    print(f"swaps out {list(outputs.blocks_to_swap_out)}, swaps in {swap_in}")
    for source, target in swap_in if is_in_order else reversed(swap_in):
        engine.device[target] = host[source]
    is_right = True
    for data, scheduled in zip(metadata, outputs.scheduled_seq_groups, strict=True):
        (seq,) = scheduled.seq_group.get_seqs()
        table = data.block_tables[seq.seq_id]
        print(f"  request {seq.seq_id} with tokens {seq.get_token_ids()} has blocks {table}")
        is_right &= engine.compute(seq, table, seq.data.get_num_computed_tokens())
        engine.sample(scheduled, to_generate[seq.seq_id].pop(0))
        if not to_generate[seq.seq_id]:
            engine.finish(seq)
    return is_right


for token in (1, 0, 0, 0):
    engine.add([token])
for _ in range(3):  # the last two requests are swapped out, and the first two end
    step(is_in_order=True)
is_right = step(is_in_order=False)
fault_if(not is_right, "two swap-ins of one step land on one block, so a request reads the KV of another one")
