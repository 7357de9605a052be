"""vLLM 0.18.0 to 0.29.0: the connector to LMCache keeps its locks if another connector loads the request.

Each of several connectors looks a request up, and one of them loads it. The server of LMCache locks what was found. If
another connector is chosen, LMCache's gets a number of zero tokens; it does not look at that number, waits for
a load that does not come, and its locks stay until they run out. From 0.30.0 on it releases them. Run it with the vLLM
that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_lmcache_connector import held_after_admission

CONNECTOR = "distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"

held = held_after_admission("vllm", CONNECTOR, num_computed=0, num_loaded=0)
print(f"chunks of the prompt: 3; another connector loads them; locks that are left: {held}")
fault_if(held, f"{held} chunks stay locked, although this connector does not load them")
