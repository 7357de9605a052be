"""vLLM V1, 0.9.1 to 0.19.1: with full attention beside a window and EAGLE, a hit is one block shorter than it could be.

A draft model needs the last block of a hit computed again, so the manager drops it. In a model with full attention and
sliding windows, the manager of the full attention drops the last block that it found. The window is then looked up
within what is left, and its manager drops another block. The blocks that are dropped twice are computed again; no
answer is wrong. Repaired in 0.20.0: each group drops a block once (issue 32802). Run it with the vLLM that is to be
tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm import kv_config, new_manager, serve, spec, stand_in_request

manager = new_manager(kv_config(32, spec(), spec("SlidingWindowSpec", sliding_window=3)), use_eagle=True)
serve(manager, stand_in_request("first", [0] * 8))
num_hit = serve(manager, stand_in_request("again", [0] * 9))
print(f"8 tokens are cached in blocks of 2; {num_hit} are hit")
fault_if(num_hit < 6, "a draft model drops one block, so 6 tokens are to be hit")
