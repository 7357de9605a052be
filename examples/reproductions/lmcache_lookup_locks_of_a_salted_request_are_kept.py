"""LMCache 0.5.0: its connector for vLLM names no salt when it releases locks (issue 3770).

The salt of a request is a part of the keys under which the server finds and locks its chunks. The connector names it
when it looks the request up, and not when it releases the chunks that it will not load, so that the server releases
keys that nobody holds: the locks of the request stay until they run out. From 0.5.2 on it names the salt. Run it with
the LMCache that is to be tried: exit code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_lmcache_connector import held_after_admission

held = held_after_admission(
    "lmcache", "integration.vllm.lmcache_mp_connector", num_computed=4, num_loaded=2, salt="tenant"
)
print(f"chunks of the prompt: 3; vLLM has 2, and loads 1; locks that are left: {held}")
fault_if(held, f"{held} chunks of the salted request stay locked, although nobody will load them")
