"""What executes a batch in the place of a model: it computes, writes and reads what the engine's own tensors say.

The KV of a token is a number that stands for the token and all before it. A step takes its tokens from the input ids,
where those of the batch before have been carried over as the engine does it; they must be the very tokens of the
request. It writes the KV of its tokens through the write indices into the real tensor, and reads through the read
indices, both by `update` of the release's own allocator; what it reads must be the numbers of the very tokens of the
request, position by position. What it samples goes where the engine looks for it.

With overlapping batches there are two pairs of tensors, on the host and on the device, as `ContinuousBatchingAsyncIOs`
has them; its constructor asks for an accelerator, so the pairs are put together here, and its events happen at once.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from kvproof.check.protocol.scheduler import Access
from kvproof.check.subjects.loading.stub_modules import StubObject, nothing

FILLER = 0  # sampled of whom nobody will ask


# A stream, or an event on it: what is waited for has happened.
AT_ONCE = StubObject(record_event=nothing, wait_event=nothing, synchronize=nothing)
NO_PROCESSORS = StubObject(tensors_required=0, fill_defaults=nothing, prepare_tensor_args=nothing, check_kwargs=nothing)


def make_ios(modules: Any, cache: Any, model: Any, settings: Any) -> Any:
    """The tensors of one batch, or those of two that overlap."""
    import torch

    wanted = {
        "cache": cache,
        "config": model,
        "continuous_batching_config": settings,
        "device": torch.device("cpu"),
        "model_dtype": torch.float32,
        "logit_processor": NO_PROCESSORS,
    }
    if not settings.use_async_batching:
        return modules.ios.ContinuousBatchingIOs(**wanted)
    pairs = []
    for _ in range(2):
        pair = modules.ios.HostDeviceIOPair.__new__(modules.ios.HostDeviceIOPair)
        pair.host_io, pair.device_io = (modules.ios.ContinuousBatchingIOs(**wanted) for _ in range(2))
        pair.h2d_over = pair.compute_over = pair.d2h_over = AT_ONCE
        pairs.append(pair)
    ios = modules.ios.ContinuousBatchingAsyncIOs.__new__(modules.ios.ContinuousBatchingAsyncIOs)
    ios.current_pair, ios.io_pairs, ios.max_batch_tokens = 0, pairs, cache.max_batch_tokens
    ios.h2d_stream = ios.d2h_stream = ios.compute_stream = AT_ONCE
    return ios


class Batch:
    """A batch that was prepared. futures: who is in it, as the engine says."""

    def __init__(self, futures: list[Any]) -> None:
        self.futures = futures
        self.names = [future.state.request_id for future in futures]
        self.stops = [future.state.position_offset for future in futures]
        self.sampled: dict[str, int] = {}  # the token that was sampled of each request
        self._last: list[int] = []  # for each place where a token is sampled, the request whose last position it is
        self._output: Any = None

    @property
    def starts(self) -> list[int]:
        """Where each begins to compute."""
        return [stop - future.query_length for stop, future in zip(self.stops, self.futures, strict=True)]

    def execute(self, ios: Any, known: Mapping[str, list[int]], names: dict[tuple[int, ...], int]) -> list[Access]:
        """Carry over, write and read; return what was accessed.

        known: the tokens of each request. names: a number for each prefix.
        """
        inputs = ios.get_model_kwargs()
        carried, before, self._output = ios.get_cb_kwargs()
        ios.carry_over_tokens(inputs["input_ids"], carried, before)
        computed = self._inputs(inputs, known)
        bounds = inputs["cu_seq_lens_q"].tolist()
        ends = {stop - 1: at for at, (start, stop) in enumerate(pairwise(bounds)) if start < stop}
        self._last = [ends.get(at, -1) for at in inputs["logits_indices"].tolist()]
        if len(computed.observed) != len(computed.places):  # the tensors have no room for what would be written
            return [computed]
        return [computed, *self._compute(inputs, known, names)]

    def _inputs(self, inputs: Any, known: Mapping[str, list[int]]) -> Access:
        tokens, positions = inputs["input_ids"][0].tolist(), inputs["position_ids"][0].tolist()
        spans = list(zip(self.names, self.starts, self.stops, strict=True))
        places = [(name, at) for name, start, stop in spans for at in range(start, stop)]
        expected = [(at, known[name][at]) for name, at in places]
        return Access("token", places, expected, list(zip(positions, tokens, strict=True)))

    def _compute(
        self, inputs: Any, known: Mapping[str, list[int]], names: dict[tuple[int, ...], int]
    ) -> Iterator[Access]:
        import torch

        written: list[int] = []
        places: list[tuple[str, int]] = []
        expected: list[int] = []
        for request, start, stop in zip(self.names, self.starts, self.stops, strict=True):
            tokens = known[request]
            prefixes = [names.setdefault(tuple(tokens[: at + 1]), len(names) + 1) for at in range(stop)]
            written += prefixes[start:]
            places += [(request, at) for at in range(stop)]
            expected += prefixes
        (allocator,) = inputs["cache"].cache_allocators.values()
        shape = (-1, allocator.num_key_value_heads, allocator.head_dim)
        keys = torch.tensor(written, dtype=allocator.cache_dtype)[:, None, None].expand(shape)
        (reads,), (writes,) = inputs["read_index"], inputs["write_index"]
        for layer in allocator.layer_indices:
            found = allocator.update(keys + layer, -keys - layer, layer, reads, writes)
            if len(reads):
                yield Access("key", places, expected, _numbers(found[0][:, 0, 0] - layer))
                yield Access("value", places, expected, _numbers(-found[1][:, -1, -1] - layer))

    def sample(self, tokens: Mapping[str, int]) -> None:
        """These tokens are sampled, by request; they are where the engine will look for them."""
        self.sampled = dict(tokens)
        for place, at in enumerate(self._last):
            if at >= 0:
                self._output[0, place] = tokens.get(self.names[at], FILLER)


def _numbers(found: Any) -> list[int]:
    return [int(number) for number in found.tolist()]


def make_settings(config: Any) -> StubObject:
    """What the cache and the tensors read of the engine's configuration; config: that of the loop."""
    return StubObject(
        page_size=config.block_size,
        num_blocks=config.num_gpu_blocks,
        allow_block_sharing=config.caching,
        max_batch_tokens=config.max_num_batched_tokens,
        max_blocks_per_request=0,
        fallback_max_blocks_per_request=0,
        max_memory_percent=1.0,
        max_requests_per_batch=config.max_num_seqs,
        cuda_graph_booleans=(False, False),
        return_logprobs=False,
        use_async_batching=config.async_steps > 0,
    )


def make_model(config: Any) -> StubObject:
    """One layer, of which a sector holds two blocks where the blocks are even in number."""
    is_odd = config.num_gpu_blocks % 2 or config.num_host_blocks % 2
    return StubObject(
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=16 if is_odd else 8,
        hidden_size=16,
        vocab_size=16,
        _attn_implementation="paged|flash",
    )
