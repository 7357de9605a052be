"""Which tokens are tried: enough of them for every pattern of equal and different identities, and no more.

An identity is a number for everything before a position together with the token there; equal prefixes give equal
identities, by construction and not by luck. What a rule compares, it compares for equality, and only to *allow*
something (no guard asks that two contents differ). So merging token values keeps a run possible, and a run that makes
two slots differ which must be equal can be renamed, position by position, until each position has only two values:
the one in the first slot, and every other. Two raw values for each position are therefore enough where contents are
compared (caching); a value that nothing in the state uses is tried once. Where nothing is compared, a fresh token for
each append is the most that can differ.
"""

from collections.abc import Iterable

NUM_VALUES = 2
ROOT = 0  # the identity before the first position


class Continuations:
    """The identities of one exploration, as a tree: each identity knows the one before it."""

    def __init__(self) -> None:
        self.before: list[int] = [ROOT]
        self._after: list[list[int]] = [[]]

    def after(self, identity: int, value: int) -> int:
        """The identity of the next position, when the raw token there is `value`."""
        following = self._after[identity]
        while len(following) <= value:
            following.append(len(self.before))
            self.before.append(identity)
            self._after.append([])
        return following[value]

    def raw(self, identity: int) -> list[int]:
        """The raw tokens from the first position up to this identity."""
        values: list[int] = []
        while identity != ROOT:
            before = self.before[identity]
            values.append(self._after[before].index(identity))
            identity = before
        return values[::-1]

    def fresh(self, identity: int, used: set[int]) -> int:
        """The first identity of the next position that is not among `used`."""
        value = 0
        while (following := self.after(identity, value)) in used:
            value += 1
        return following

    def choices(self, identity: int, used: set[int]) -> list[int]:
        """What is tried for the next position: every identity that the state uses, and one that it does not."""
        following = [self.after(identity, value) for value in range(NUM_VALUES)]
        unused = [each for each in following if each not in used]
        return [each for each in following if each in used] + unused[:1]

    def rows(self, identity: int, num_slots: int, used: set[int]) -> list[list[int]]:
        """Every choice for the next `num_slots` positions."""
        rows: list[list[int]] = [[]]
        for _ in range(num_slots):
            rows = [[*row, choice] for row in rows for choice in self.choices(row[-1] if row else identity, used)]
        return rows

    def with_all_before(self, identities: Iterable[int]) -> set[int]:
        """These identities and every identity on the way to them."""
        found: set[int] = set()
        for identity in identities:
            while identity > ROOT and identity not in found:
                found.add(identity)
                identity = self.before[identity]
        return found
