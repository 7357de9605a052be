"""vLLM 0.17.1: the connector to LMCache keeps the locks of chunks that vLLM has itself (PR 35931).

A look-up at the server locks every chunk that it finds, so that it is not evicted before it is loaded. What vLLM has in
its own prefix cache is not loaded, and the connector never releases it: the server cannot evict these chunks until
their locks run out. From 0.18.0 on it releases them when the request gets its blocks. Run it with the vLLM that is to
be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_lmcache_connector import held_after_admission

CONNECTOR = "distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"

held = held_after_admission("vllm", CONNECTOR, num_computed=4, num_loaded=2)
print(f"chunks of the prompt: 3; vLLM has 2, and loads 1; locks that are left: {held}")
fault_if(held, f"{held} chunks stay locked, although nobody will load them")
