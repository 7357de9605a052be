"""What a full block holds: identity by content, not by hash.

The KV of a block depends on its tokens, on everything before them, and on what else reaches the model
(adapter, images, salt). So a content is named by four things: the content of the block before (none for
the first), the tokens, `extra` of the whole sequence, and `extra` of this block alone. Equal names get
one `Content` object, and two blocks hold the same KV exactly when their objects are the same. The dict that finds
the object compares names with `==`; a hash only chooses the bucket, so a collision cannot join two
contents, and nothing depends on the random seed of hashes.

A content is kept while something needs it: a block registered under it, a content that follows it, or a
sequence that ends in it. `release` walks from a content towards the first one as long as nothing needs
it, in a loop, since a chain can be longer than any recursion.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Optional

NO_BLOCK = -1

Tokens = tuple[int, ...]
ContentKey = tuple[Optional["Content"], Tokens, Hashable, Hashable]


class Content:
    """One content: its name, how many things need it, the block registered under it, and computed ones that are not."""

    __slots__ = ("block_id", "depth", "key", "num_needs", "twins")

    def __init__(self, key: ContentKey) -> None:
        before = key[0]
        self.key = key
        self.depth: int = 1 if before is None else before.depth + 1  # in blocks, this one included
        self.num_needs = 0
        self.block_id = NO_BLOCK
        self.twins: list[int] = []  # in use; the first takes over when the registered block is evicted


class ContentIndex:
    """All contents that something needs, found by name."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[ContentKey, Content] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: ContentKey) -> Content | None:
        """The content of this name, if anything needs it."""
        return self._known.get(key)

    def intern(self, key: ContentKey) -> Content:
        """The content of this name. A new one is needed by nobody yet: `need` it or `release` it."""
        known = self._known
        content = known.get(key)
        if content is None:
            content = known[key] = Content(key)
            before = key[0]
            if before is not None:
                before.num_needs += 1
        return content

    def need(self, content: Content | None) -> None:
        """Keep a content until the same is given to `release`."""
        if content is not None:
            content.num_needs += 1

    def release(self, content: Content | None) -> None:
        """One need less; contents that nothing needs are forgotten."""
        while content is not None:
            content.num_needs -= 1
            if content.num_needs > 0:
                return
            del self._known[content.key]
            content = content.key[0]
