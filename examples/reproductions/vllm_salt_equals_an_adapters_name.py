"""vLLM V1, up to 0.30.0: the key of a block does not say which of its names is an adapter and which is a salt.

One prompt is computed with a LoRA adapter. Another one has the same tokens, no adapter, and a cache salt that is the
name of the adapter. Both get one block hash, so that the second request reads the KV of the first one. From 0.31.0 on
each name in the key is marked as what it is. Run it with the vLLM that is to be tried: exit code 1 if the fault is
there.
"""

from on_any_engine import StandIn, fault_if
from on_vllm import stand_in_request
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys

NAME = "tenant-a"

adapter = StandIn(lora_name=NAME, lora_path="/adapters/tenant-a", lora_int_id=1)
first, second = (
    generate_block_hash_extra_keys(stand_in_request("one block", [7, 7], **names), 0, 2, 0)[0]
    for names in ({"lora_request": adapter}, {"cache_salt": NAME})
)
print(f"with the adapter {NAME}: {first}")
print(f"with the salt {NAME}: {second}")
fault_if(first == second, "the keys are equal: the second request would read the KV that was computed with the adapter")
