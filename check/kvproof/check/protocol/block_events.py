"""What a manager or a scheduler reports of its prefix cache, for routers that send a prompt where its prefix is.

A subject that declares `block_events` can be configured to report what it caches and forgets (`Config.events`). Its
call `block_events()` returns the list of what was reported since the last such call, in order. The names in it are the
engine's own texts. A name stands for a content, that is for all tokens up to the end of the block with their key and
images, whatever the KV group: `block_names(tokens, key, images)` returns the names of the whole blocks of such a
prompt, where a block has as many tokens as the smallest block that `kv_groups` can share (the greatest common divisor
of the block sizes).
"""

from typing import NamedTuple, Protocol

from kvproof.spec.text.identity import Image, Key


class StoredBlock(NamedTuple):
    """The KV group caches a block of this name, behind the one named `parent` (None: it is the first one).

    tokens: those of the block, if the report says them block by block.
    """

    kv_group: int
    name: str
    parent: str | None
    tokens: tuple[int, ...] | None = None


class RemovedBlock(NamedTuple):
    """The KV group caches no block of this name any more."""

    kv_group: int
    name: str


class ClearedBlocks(NamedTuple):
    """No group caches any block any more."""


BlockEvent = StoredBlock | RemovedBlock | ClearedBlocks


class EventSubject(Protocol):
    """What a subject that declares `block_events` has in addition."""

    def block_events(self) -> list[BlockEvent]:
        """What was reported since the last such call, in order."""

    def block_names(self, tokens: list[int], key: Key, images: tuple[Image, ...]) -> list[str]:
        """The names of the whole blocks of a prompt. Changes nothing."""
