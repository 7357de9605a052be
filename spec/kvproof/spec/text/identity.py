"""What the KV of a position depends on, as one number: equal exactly when everything it depends on is equal.

The KV of a token depends on the token, on every token before it, on the adapter, on the images and where they lie,
and on the salt that keeps tenants apart. An identity is an interned number for (identity of the position before,
what stands here); the identity before the first position is the root of (adapter, salt). Layers whose KV lies in
blocks of another KV group have other KV of the same tokens, so each group has roots of its own. Interning compares
by equality, so nothing rests on a hash.
"""

from typing import NamedTuple


class Key(NamedTuple):
    """What the KV of a whole sequence depends on besides tokens and images."""

    adapter_name: str | None = None
    adapter_id: int = 0
    salt: str | None = None


class Image(NamedTuple):
    """An image that takes `length` positions from `start` on; `name` stands for its pixels."""

    name: str
    start: int
    length: int


class Root(NamedTuple):
    """Where the identities of a sequence begin, in one KV group."""

    key: Key
    kv_group: int = 0


Item = tuple[int, str | None, int]  # token, image, row of the image


def item_at(position: int, token: int, images: tuple[Image, ...]) -> Item:
    """What stands at a position: the token, or a row of the image that covers it."""
    for image in images:
        if image.start <= position < image.start + image.length:
            return token, image.name, position - image.start
    return token, None, 0


class Identities:
    """The interned identities of one run. Numbers start at 0, in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Item] | Root, int] = {}
        self._keys: list[tuple[int, Item] | Root] = []

    def _number(self, key: tuple[int, Item] | Root) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return number

    def root(self, key: Key, kv_group: int = 0) -> int:
        """The identity before the first position of a sequence with this key, in the layers of a KV group."""
        return self._number(Root(key, kv_group))

    def after(self, before: int, item: Item) -> int:
        """The identity of a position, given the identity before it and what stands there."""
        return self._number((before, item))

    def describe(self, identity: int) -> str:
        """The tokens, and whatever else the KV depends on, in words."""
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
