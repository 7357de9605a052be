"""Identities: one number for all that the KV of a position depends on. Equal numbers mean equal KV.

The KV of a token depends on the token, every token before it, the adapter, the images and their positions, and the salt
that separates tenants. An identity is an interned number for the pair of the identity of the position before and the
item at this position. The identity before the first position is the root of (adapter, salt). Layers whose KV is in
blocks of another KV group have different KV for the same tokens, so each group has its own roots. Interning compares
by equality, so no hash can collide.
"""

from collections.abc import Iterable
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


class Root(NamedTuple):
    """The start of the identities of a sequence, in one KV group."""

    key: Key
    kv_group: int = 0


Item = tuple[int, str | None, int]  # token, image, row of the image


def item_at(position: int, token: int, images: tuple[Image, ...]) -> Item:
    """The item at a position: the token, and the row of the image that covers it."""
    for image in images:
        if image.start <= position < image.start + image.length:
            return token, image.name, position - image.start
    return token, None, 0


class Identities:
    """The interned identities of one run. Numbers start at 0, in the order of the first request."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Item] | Root, int] = {}
        self._keys: list[tuple[int, Item] | Root] = []

    def _number(self, key: tuple[int, Item] | Root) -> int:
        number = self._numbers.get(key)
        return self._add(key) if number is None else number

    def _add(self, key: tuple[int, Item] | Root) -> int:
        number = self._numbers[key] = len(self._keys)
        self._keys.append(key)
        return number

    def root(self, key: Key, kv_group: int = 0) -> int:
        """The identity before the first position of a sequence with this key, in the layers of a KV group."""
        return self._number(Root(key, kv_group))

    def after(self, before: int, item: Item) -> int:
        """The identity of a position, given the identity before it and the item at the position."""
        return self._number((before, item))

    def along(self, before: int, tokens: Iterable[int]) -> list[int]:
        """The identities of positions with these tokens and no image, given the identity before the first of them."""
        numbers, found, items = self._numbers, list[int](), dict[int, Item]()
        for token in tokens:
            if token not in items:
                items[token] = token, None, 0
            key = before, items[token]
            number = numbers.get(key)
            if number is None:
                number = self._add(key)
            found.append(number)
            before = number
        return found

    def describe(self, identity: int) -> str:
        """The tokens, adapter, salt, KV group and images of an identity, as text."""
        items: list[Item] = []
        at = self._keys[identity]
        while not isinstance(at, Root):
            items.append(at[1])
            at = self._keys[at[0]]
        tokens = [token for token, _, _ in reversed(items)]
        images = sorted({f"image {name}" for _, name, _ in items if name is not None})
        key = at.key
        extras = [f"adapter {key.adapter_name or key.adapter_id}"] if key.adapter_id else []
        extras += [f"salt {key.salt}"] if key.salt else []
        extras += [f"KV group {at.kv_group}"] if at.kv_group else []
        return ", ".join([f"tokens {tokens}", *extras, *images])
