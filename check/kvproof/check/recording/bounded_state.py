"""A judge for as many sequences and as long tables as a live server has, whose memory does not grow with the recording.

The specification's state is made small and enlarged when a sequence needs it. Identities of positions are interned; of
those that nothing refers to any more, neither a sequence nor a block nor a longer identity that something refers to,
the judge forgets the name. Numbers are never used twice, so that a forgotten one equals no other.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kvproof.check.oracle.refinement import Explainer
from kvproof.spec.native import FIELDS, Machine
from kvproof.spec.text.identity import Identities
from kvproof.spec.text.state import State

NUM_NAMES_MIN = 1 << 16


def enlarge(explainer: Explainer, num_seqs: int, num_indexes: int) -> State:
    """Make room for so many sequences in the specification, each of so many table entries; the state, enlarged."""
    sizes, old = explainer.machine.sizes, explainer.state
    sizes = replace(sizes, num_seqs=max(num_seqs, sizes.num_seqs), num_indexes=max(num_indexes, sizes.num_indexes))
    num_before = explainer.machine.sizes.num_seqs
    explainer.machine = Machine(sizes, with_ghosts=False, with_checks=False)
    explainer.rules, new = explainer.machine.rules, explainer.machine.first_state()
    for name, field in FIELDS.items():
        if field.kind != "ghost":
            setattr(new, name, _stretched(getattr(old, name), getattr(new, name)))
    explainer.state = new
    explainer.free_slots[:0] = range(sizes.num_seqs - 1, num_before - 1, -1)
    return new


def _stretched(old: Any, new: Any) -> Any:
    """What is there, and after it what a larger machine has besides."""
    if not isinstance(old, list):
        return old
    if not old or not isinstance(old[0], list):
        return old + new[len(old) :]
    return [_stretched(*pair) for pair in zip(old, new, strict=False)] + new[len(old) :]


class BoundedIdentities(Identities):
    """Identities that can be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[int, Any] = {}
        self._keys = self._names  # type: ignore[assignment]  # looked up by number, as the list is
        self._next = 0
        self.num_names_max = NUM_NAMES_MIN

    def _number(self, key: Any) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._next
            self._next += 1
            self._numbers[key], self._names[number] = number, key
        return number

    @property
    def is_full(self) -> bool:
        """Whether it is time to forget."""
        return len(self._names) > self.num_names_max

    def keep_only(self, used: Iterable[int]) -> None:
        """Forget every identity but these, and those they go back to."""
        kept: set[int] = set()
        for number in used:
            while number in self._names and number not in kept:
                kept.add(number)
                key = self._names[number]
                if type(key) is not tuple:  # a root
                    break
                number = key[0]
        for number in self._names.keys() - kept:
            del self._numbers[self._names.pop(number)]
        self.num_names_max = max(NUM_NAMES_MIN, 2 * len(kept))
