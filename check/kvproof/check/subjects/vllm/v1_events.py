"""The events of vLLM's V1 prefix cache, as the protocol of managers has them.

An event of stored blocks lists names, and the tokens from the first block that it is about to the last one. Where
groups keep only some of these blocks, there are fewer names than blocks, and the event does not say which block has
which tokens, nor what is before each. Full attention keeps each block: there, tokens that no other block has are taken
for those of the first one.
"""

import inspect
from collections.abc import Collection, Iterable
from typing import Any

from kvproof.check.protocol.block_events import BlockEvent, ClearedBlocks, RemovedBlock, StoredBlock
from kvproof.check.protocol.manager import FULL, Config, Unsupported
from kvproof.check.subjects.loading import partial_import

REPORT_MODE = "kv_cache_report_mode"  # of a request
REPORTED = "incremental", "incremental", "full"  # what a request says is reported, by `Config.events`
DEVICE = None, "GPU"  # the media of blocks of the device, as releases name them


def reports_groups() -> bool:
    """Whether the events of the release say which group they are about: from 0.20 on.

    In older ones the hash of a block with images also depends on the call that makes it.
    """
    if not partial_import.has_module("vllm", "v1.core.block_pool"):  # before 0.8
        return False
    return "group_idx" in inspect.getsource(partial_import.module_of("vllm", "v1.core.block_pool"))


def require_events(config: Config, reports_hits: bool) -> None:
    """Raise Unsupported for events that the release does not have, or that are not judged."""
    if config.events > 1 and not reports_hits:
        raise Unsupported("events of blocks that are hit")
    if config.events and config.embeddings:
        raise Unsupported("events of prompts that are embeddings, which have no tokens")
    if config.events and len({*config.block_sizes}) > 1:
        raise Unsupported("events of blocks of different sizes, of which some are reported in parts")


def names_of(utils: Any, hashes: Iterable[Any]) -> list[str]:
    """The names of blocks with these hashes in events. utils: `vllm.v1.core.kv_cache_utils`."""
    convert = getattr(utils, "maybe_convert_block_hash", lambda one: one)
    return [str(convert(one)) for one in hashes]


def groups_that_keep_all(config: Config) -> set[int]:
    """The KV groups that keep each of their blocks."""
    return {i for i, kind in enumerate(config.kinds) if kind == FULL and not config.windows[i]}


def block_events(events: Iterable[Any], keep_all: Collection[int]) -> list[BlockEvent]:
    """The events of blocks of the device, in order. keep_all: the KV groups whose events name each block."""
    found: list[BlockEvent] = []
    for event in events:
        if getattr(event, "medium", None) not in DEVICE:
            continue
        group = getattr(event, "group_idx", None) or 0
        names = [str(one) for one in getattr(event, "block_hashes", ())]
        if type(event).__name__ == "BlockRemoved":
            found += [RemovedBlock(group, name) for name in names]
        elif type(event).__name__ == "BlockStored":
            found += _stored(event, group, names, group in keep_all)
        else:
            found.append(ClearedBlocks())
    return found


def _stored(event: Any, group: int, names: list[str], keeps_all: bool) -> list[BlockEvent]:
    size, tokens = event.block_size, tuple(event.token_ids)
    if len(tokens) != size * len(names) and not keeps_all:
        return [StoredBlock(group, name, None) for name in names]
    first = None if event.parent_block_hash is None else str(event.parent_block_hash)
    ends = [max(0, len(tokens) - size * (len(names) - 1 - at)) for at in range(len(names))]
    return [
        StoredBlock(group, name, before, tokens[begin:end])
        for name, before, begin, end in zip(names, [first, *names], [0, *ends], ends, strict=False)
    ]


class Publisher:
    """Takes the place of the scheduler's publisher, and keeps what is published."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def publish(self, batch: Any) -> None:
        """Keep the events of a batch."""
        self._events += batch.events

    def taken(self) -> list[Any]:
        """What was published since the last such call."""
        events, self._events = self._events, []
        return events
