"""Identities: one number for all that the KV of a position depends on. Equal numbers mean equal KV.

The KV of a token depends on the token, every token before it, the adapter, the images and their positions, and the salt
that separates tenants. An identity is an interned number for the pair of the identity of the position before and the
item at this position. The identity before the first position is the root of (adapter, salt). Layers whose KV is in
blocks of another KV group have different KV for the same tokens, so each group has its own roots. Interning compares
by equality, so no hash can collide.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple


class Key(NamedTuple):
    """What the KV of a whole sequence depends on, in addition to tokens and images."""

    adapter_name: str | None = None
    adapter_id: int = 0
    salt: str | None = None


class Image(NamedTuple):
    """An image that takes `length` positions from `start` on; `name` stands for its pixels."""

    name: str
    start: int
    length: int


def covers_some(image: Image, start: int, stop: int) -> bool:
    """Whether one of the positions from `start` to `stop` lies in the image, so that its output is read there."""
    return image.start < stop and start < image.start + image.length


class Root(NamedTuple):
    """The start of the identities of a sequence, in one KV group."""

    key: Key
    kv_group: int = 0


ImageRow = tuple[int, str, int]  # a token, the image that covers its position, and the row of it
Item = int | ImageRow  # what the KV of a position depends on there: the token, if no image covers it


def item_at(position: int, token: int, images: tuple[Image, ...]) -> Item:
    """The item at a position: the token, and the row of the image that covers it, if one does."""
    for image in images:
        if image.start <= position < image.start + image.length:
            return token, image.name, position - image.start
    return token


def token_of(item: Item) -> int:
    """The token at the position of an item."""
    return item if isinstance(item, int) else item[0]


def images_of(items: Iterable[Item]) -> tuple[Image, ...]:
    """The images that cover the positions of these items, as far as they do."""
    found: dict[tuple[str, int], int] = {}
    for position, item in enumerate(items):
        if not isinstance(item, int):
            _, name, row = item
            found[name, position - row] = row + 1
    return tuple(Image(name, start, length) for (name, start), length in found.items())


class Identities:
    """The interned identities of one run. Numbers start at 0, in the order of the first request."""

    def __init__(self) -> None:
        self._numbers: defaultdict[tuple[int, Item] | Root, int] = defaultdict(count().__next__)

    def root(self, key: Key, kv_group: int = 0) -> int:
        """The identity before the first position of a sequence with this key, in the layers of a KV group."""
        return self._numbers[Root(key, kv_group)]

    def after(self, before: int, item: Item) -> int:
        """The identity of a position, given the identity before it and the item at the position."""
        return self._numbers[before, item]

    def along(self, before: int, items: Iterable[Item]) -> list[int]:
        """The identities of positions with these items, given the identity before the first of them."""
        numbers, found = self._numbers, list[int]()
        for item in items:
            before = numbers[before, item]
            found.append(before)
        return found

    def paths(self, identities: Iterable[int]) -> Iterator[tuple[int, Root, list[Item]]]:
        """Each of these identities with its root and the items from there to it."""
        keys = {number: key for key, number in self._numbers.items()}
        for identity in identities:
            items: list[Item] = []
            at = keys[identity]
            while not isinstance(at, Root):
                items.append(at[1])
                at = keys[at[0]]
            yield identity, at, items[::-1]

    def describe(self, identity: int) -> str:
        """The tokens, adapter, salt, KV group and images of an identity, as text."""
        ((_, at, items),) = self.paths((identity,))
        tokens = [token_of(item) for item in items]
        images = sorted({f"image {item[1]}" for item in items if not isinstance(item, int)})
        key = at.key
        extras = [f"adapter {key.adapter_name or key.adapter_id}"] if key.adapter_id else []
        extras += [f"salt {key.salt}"] if key.salt else []
        extras += [f"KV group {at.kv_group}"] if at.kv_group else []
        return ", ".join([f"tokens {tokens}", *extras, *images])
