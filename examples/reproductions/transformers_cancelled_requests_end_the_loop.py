"""transformers, 5.20.0 to 5.23.0: a cancellation ends the loop of continuous batching, or leaves a request waiting.

Three runs, with the parts of the generation loop and without a model:

- Batches overlap (`use_async_batching`). A request is cancelled while a batch computes it. The next preparation drops
  its block table, and `update_batch`, which skips only finished and pending requests, asks for it: `KeyError`.
- Batches overlap, and a request with children is cancelled between the first two batches. `update_batch` still forks
  it: `KeyError`. Either error ends the loop, and every request with it.
- A request gets no further block, so another one is reset to make room, which sets `block_new_requests`. Only the end
  of a request sets it back. If all requests that run are cancelled, the one that was reset waits for ever, and so does
  every new one.

Run it with the transformers that is to be tried: exit code 1 if the fault is there.
"""

import queue
from typing import Any

import torch
from on_any_engine import StandIn, fault_if, nothing, same
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.continuous_api import BackgroundThreadStatus, ContinuousBatchProcessor
from transformers.generation.continuous_batching.distributed import DistributedHelper
from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs
from transformers.generation.continuous_batching.offloading_manager import OffloadingManager
from transformers.generation.continuous_batching.requests import RequestState
from transformers.generation.continuous_batching.scheduler import SCHEDULER_MAPPING

NUM_REQUESTS_MAX, NUM_STEPS = 16, 8
ONE_EACH = same(1, "num_hidden_layers num_attention_heads num_key_value_heads")
MODEL = StandIn(_attn_implementation="paged|flash", **same(16, "head_dim hidden_size vocab_size"), **ONE_EACH)
NO_PROCESSORS = StandIn(tensors_required=0, **same(nothing, "fill_defaults prepare_tensor_args check_kwargs"))


class Processor(ContinuousBatchProcessor):  # type: ignore[misc]
    """The loop's processor, made of its parts."""

    def __init__(self, block_size: int, num_blocks: int, is_async: bool) -> None:
        settings = StandIn(
            page_size=block_size,
            num_blocks=num_blocks,
            allow_block_sharing=True,
            max_memory_percent=1.0,
            cuda_graph_booleans=(False, False),
            return_logprobs=False,
            use_async_batching=is_async,
            **same(NUM_REQUESTS_MAX, "max_batch_tokens max_requests_per_batch"),
            **same(0, "max_blocks_per_request fallback_max_blocks_per_request"),
        )
        alone, device = DistributedHelper(None, None), torch.device("cpu")
        self.cache = PagedAttentionCache(MODEL, settings, "cpu", alone, torch.float32)
        self.scheduler = SCHEDULER_MAPPING["fifo"](self.cache, None, NUM_REQUESTS_MAX)
        self.inputs_and_outputs = ContinuousBatchingIOs(
            cache=self.cache,
            config=MODEL,
            continuous_batching_config=settings,
            device=device,
            model_dtype=torch.float32,
            logit_processor=NO_PROCESSORS,
        )
        self.distributed_helper = alone
        self.offloading_manager = OffloadingManager(self.cache, self.scheduler, 0.0, 0.0, None, alone)
        self.model_runner = StandIn(maybe_pad_inputs=lambda queries, keys, fast: (queries, keys), pad_inputs=False)
        self.logit_processor = NO_PROCESSORS
        self.output_router = StandIn(deliver_batch=nothing)
        self.background_thread_status = BackgroundThreadStatus()
        self.input_queue: Any = queue.Queue()
        self.cancel_queue: Any = queue.Queue()
        self.max_batch_tokens = self.cache.max_batch_tokens
        self.use_async_batching = is_async

    def __del__(self) -> None:
        """Nothing of a device is freed."""


def request(name: str, num_tokens: int, max_new_tokens: int, num_children: int = 0) -> Any:
    """A request whose tokens are all 1."""
    return RequestState(name, [1] * num_tokens, max_new_tokens=max_new_tokens, num_children=num_children)


def cancelled_while_computed(num_children: int) -> str:
    """Cancel a request while a batch computes it; returns the fault, or an empty text."""
    processor = Processor(block_size=1, num_blocks=4, is_async=True)
    processor.input_queue.put(request("first", 1, 2, num_children))
    assert processor.prepare_next_batch()
    processor.cancel_queue.put("first")
    processor.prepare_next_batch()  # batches overlap: the next one is prepared before the results are read
    try:
        processor.update_batch()
    except KeyError as error:
        return f"a request with {num_children} children is cancelled while it is computed: KeyError {error}"
    return ""


def reset_and_never_taken_back() -> str:
    """Cancel the only request that runs, while another one was reset; returns the fault, or an empty text."""
    processor = Processor(block_size=2, num_blocks=4, is_async=False)
    processor.input_queue.put(request("first", 1, 5))
    processor.input_queue.put(request("second", 2, 4))
    while not processor.scheduler.block_new_requests:
        if not processor.prepare_next_batch():
            return ""
        if not processor.scheduler.block_new_requests:
            processor.update_batch()
    processor.update_batch()
    for name in list(processor.scheduler.active_requests):
        processor.cancel_queue.put(name)
    for _ in range(NUM_STEPS):
        if processor.prepare_next_batch():
            processor.update_batch()
    waiting = list(processor.scheduler.waiting_requests)
    return f"{waiting} wait, and nothing runs" if waiting else ""


faults = [fault for fault in (*map(cancelled_while_computed, (0, 1)), reset_and_never_taken_back()) if fault]
fault_if(faults, "; ".join(faults))
print("every run ended as it should")
