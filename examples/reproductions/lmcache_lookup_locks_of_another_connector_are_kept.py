"""LMCache 0.5.0 to 0.5.4: its connector for vLLM keeps its locks if another connector loads the request (PR 4028).

Each of several connectors looks a request up, and one of them loads it. The server of LMCache locks what was found. If
another connector is chosen, LMCache's gets a number of zero tokens; it does not look at that number, begins a
load that nobody wants, and until then keeps its locks. From 0.5.5 on it releases them. Run it with the LMCache that is
to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_lmcache_connector import held_after_admission

held = held_after_admission("lmcache", "integration.vllm.lmcache_mp_connector", num_computed=0, num_loaded=0)
print(f"chunks of the prompt: 3; another connector loads them; locks that are left: {held}")
fault_if(held, f"{held} chunks stay locked, although this connector does not load them")
