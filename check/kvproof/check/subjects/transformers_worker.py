"""What executes a batch in the place of a model: it writes and reads the cache tensor at the places it is given.

The KV of a token is a number that stands for the token and all before it. A step writes the KV of its tokens through
the write indices into the real tensor, and reads through the read indices, both by `update` of the release's own
allocator; what it reads must be the numbers of the very tokens of the request, position by position.
"""

from typing import Any

from kvproof.check.finding import Finding


class Batch:
    """The tensors of a batch (`input_outputs.py`), as far as the loop asks for them."""

    compute_stream = None

    def __init__(self, cache: Any, tmp_token: int) -> None:
        self.cache, self.tmp_token = cache, tmp_token
        self.futures: list[Any] = []
        self.tokens: list[int] = []
        self._spans: list[tuple[Any, int, int]] = []
        self._reads, self._writes = [list[int]()], [list[int]()]
        self._max_kv_read = 0

    def prepare_batch_tensors(self, requests_in_batch: list[Any], max_kv_read: int, **options: Any) -> None:
        """Where each request reads and writes; its position advances, and its next token is not known yet."""
        self.futures = list(requests_in_batch)
        self._reads, self._writes, self._max_kv_read = [[]], [[]], max_kv_read
        self._spans = []
        for future in self.futures:
            state, length = future.state, future.query_length
            past = state.position_offset
            state.position_offset += length
            reads = self._reads if max_kv_read else None
            self.cache.extend_read_and_write_indices(state.request_id, past, length, reads, self._writes)
            self._spans.append((state, past, past + length))
            if future.has_new_token:
                state.tokens_to_process = [self.tmp_token]

    def prepare_batch_update(self) -> tuple[list[Any], list[int], None]:
        """What was computed, and the token of each request that has a new one."""
        return self.futures, self.tokens, None

    def execute(self, known: dict[str, list[int]], names: dict[tuple[int, ...], int]) -> None:
        """Write, read, and compare. known: the tokens of each request; names: a number for each prefix."""
        import torch

        written: list[int] = []
        read: list[tuple[str, int, int]] = []
        for state, start, stop in self._spans:
            tokens = known[state.request_id]
            prefixes = [names.setdefault(tuple(tokens[: at + 1]), len(names) + 1) for at in range(stop)]
            written += prefixes[start:]
            read += [(state.request_id, at, name) for at, name in enumerate(prefixes)]
        (allocator,) = self.cache.cache_allocators.values()
        shape = (-1, allocator.num_key_value_heads, allocator.head_dim)
        keys = torch.tensor(written, dtype=allocator.cache_dtype)[:, None, None].expand(shape)
        reads, writes = torch.tensor(self._reads[0], dtype=torch.long), torch.tensor(self._writes[0], dtype=torch.long)
        for layer in allocator.layer_indices:
            found = allocator.update(keys + layer, -keys - layer, layer, reads, writes)
            if self._max_kv_read:
                self._compare(found[0][:, 0, 0] - layer, read, "key")
                self._compare(-found[1][:, -1, -1] - layer, read, "value")

    def _compare(self, found: Any, expected: list[tuple[str, int, int]], what: str) -> None:
        numbers = [int(number) for number in found.tolist()]
        if len(numbers) != len(expected):
            raise Finding("read-back", f"a step reads {len(numbers)} positions of {len(expected)}")
        for number, (request, at, name) in zip(numbers, expected, strict=True):
            if number != name:
                raise Finding(
                    "read-back",
                    f"sequence {request} reads position {at}: its slot of the cache tensor holds the {what} of another "
                    f"token (number {number} for {name})",
                )
