"""Grow the specification's state on demand, and forget unused identities, so that memory stays bounded.

A live server has many sequences and long tables, and a recording may have any length. The state of the specification
starts small and is enlarged when a sequence needs it. Identities of positions are interned. An identity is forgotten if
no sequence, no block and no longer identity in use refers to it. Numbers are never reused, so a forgotten identity is
never equal to another one.
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
    """Enlarge the state to at least these sizes. Returns the new state.

    num_seqs: sequences. num_indexes: table entries of a sequence.
    """
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
    """The old values, followed by the initial values of the larger state."""
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
        """Whether unused identities should be forgotten now."""
        return len(self._names) > self.num_names_max

    def keep_only(self, used: Iterable[int]) -> None:
        """Forget every identity except these and their prefixes."""
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
