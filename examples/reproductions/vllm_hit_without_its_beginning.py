"""vLLM V0, 0.6.5 to 0.10.2: a prompt is hit although the beginning of its cached prefix was evicted.

Blocks are evicted in the order of their last use, and of blocks with the same time the last one of a prefix goes first.
But a request that is freed sets the time of its blocks to the step in which it ran last, even if another request used
them later. Then the beginning of a prefix is evicted before its end. A look-up searches for the end of the cached
prefix by bisection, so it takes the whole prefix as cached, and the request reads blocks that were never computed. Run
it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_v0 import Engine

engine = Engine(block_size=4, num_blocks=8)
prompt = [1] * 16
engine.add(prompt[:9])
engine.step()
long = engine.add([*prompt, 1])
engine.step()  # a prompt runs alone: the short request does not run in this step
engine.finish(long)
engine.scheduler.abort_seq_group("0")  # the short request, which ran last one step earlier
other = engine.add([2] * 23)
engine.step()  # needs more blocks than are free without eviction
engine.finish(other)
engine.add([*prompt, 1])
fault_if(not engine.step(), "a block is taken as computed that holds the KV of another request")
