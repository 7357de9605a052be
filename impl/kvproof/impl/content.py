"""The content of a full block: identity by content, not by hash.

The KV of a block depends on its tokens, on everything before them, and on what else reaches the model
(adapter, images, salt). So the name of a content has four parts: the content of the block before (None for
the first), the tokens, `extra` of the whole sequence, and `extra` of this block alone. Equal names get one `Content`
object, so two blocks hold the same KV exactly when their objects are the same. The dict that finds the object compares
names with `==`; a hash only chooses the bucket. So a hash collision cannot join two contents, and nothing depends on
the random seed of hashes.

A content is kept while something needs it: a block that is registered under it, a content that follows it, or a
sequence that ends in it. `release` walks from a content towards the first one as long as nothing needs it. It is a
loop, since a chain can be longer than any recursion.
"""

from collections.abc import Hashable
from typing import Optional

NO_BLOCK = -1

Tokens = tuple[int, ...]
ContentKey = tuple[Optional["Content"], Tokens, Hashable, Hashable]


class Content:
    """One content: its name, the number of needs, the block registered under it, and computed blocks that are not."""

    __slots__ = ("block_id", "depth", "key", "num_needs", "twins")

    def __init__(self, key: ContentKey) -> None:
        before = key[0]
        self.key = key
        self.depth: int = 1 if before is None else before.depth + 1  # in blocks, including this one
        self.num_needs = 0
        self.block_id = NO_BLOCK
        self.twins: list[int] = []  # blocks in use; the first takes over when the registered block is evicted


class ContentIndex:
    """Finds, by name, the contents that something needs."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[ContentKey, Content] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, key: ContentKey) -> Content | None:
        """Return the content of this name; None if nothing needs it."""
        return self._known.get(key)

    def intern(self, key: ContentKey) -> Content:
        """Return the content of this name. A new one has no need yet: the caller registers a block or calls `need`."""
        content = self._known.get(key)
        if content is None:
            return self.add(key)
        return content

    def add(self, key: ContentKey) -> Content:
        """Return a new content for a name that the index does not have."""
        content = self._known[key] = Content(key)
        before = key[0]
        if before is not None:
            before.num_needs += 1
        return content

    def add_unknown(self, key: ContentKey) -> Content | None:
        """Return a new content for a name; None, and nothing is added, if the index has the name."""
        content = Content(key)
        if self._known.setdefault(key, content) is not content:
            return None
        before = key[0]
        if before is not None:
            before.num_needs += 1
        return content

    def need(self, content: Content | None) -> None:
        """Add a need, which keeps the content until `release`."""
        if content is not None:
            content.num_needs += 1

    def release(self, content: Content | None) -> None:
        """Remove a need, and forget the contents that nothing needs any more."""
        while content is not None:
            content.num_needs -= 1
            if content.num_needs > 0:
                return
            del self._known[content.key]
            content = content.key[0]
