"""vLLM V1 0.11.1 and 0.11.2: without chunked prompts, a long prompt waits as long as shorter ones arrive.

Requests are served in the order of arrival. A prompt that is longer than what is left of a step's tokens cannot be
computed in this step. The scheduler passes over it, and admits the shorter prompts behind it; if others arrive all the
time, the long one never comes. Repaired in 0.12.0: the step ends there. Run it with the vLLM that is to be tried: exit
code 1 if the fault is there.
"""

from on_any_engine import fault_if
from on_vllm_scheduler import new_request, new_scheduler

NUM_TOKENS = 64  # of a step

scheduler = new_scheduler(40, NUM_TOKENS, max_num_batched_tokens=NUM_TOKENS, is_chunked=False)
for number, (name, num_tokens) in enumerate({"short": 1, "long": NUM_TOKENS, "later": 1}.items()):
    scheduler.add_request(new_request(name, [0] * num_tokens, arrival_time=float(number)))
computed = scheduler.schedule().num_scheduled_tokens
print(f"a step computes {computed}")
fault_if("later" in computed and "long" not in computed, "a request was admitted that arrived after one that waits")
