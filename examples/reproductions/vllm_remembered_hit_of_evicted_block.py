"""vLLM V0, 0.6.5 to 0.9.1: a request is hit for a block that was evicted while it waited, and reads another's KV.

The scheduler asks how many tokens of a waiting prompt are cached, and the block manager remembers the answer. If there
is no room, the request waits, and its cached blocks may be evicted. When there is room, the old answer is used: blocks
that were just allocated are taken as computed. Repaired in 0.9.2 (pull request 18957): the answer is forgotten if the
request is not scheduled. Run it with the vLLM that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_v0 import Engine

engine = Engine(block_size=4, num_blocks=4)
first = engine.add([1] * 8)
engine.step()
engine.finish(first)
second = engine.add([2] * 8)
engine.step()
engine.add([1] * 16)  # two of its blocks are cached, and there is no room: it waits
engine.step()  # the second request grows, into a block of the first
engine.finish(second)
fault_if(not engine.step(), "a block is taken as computed that holds the KV of another request")
