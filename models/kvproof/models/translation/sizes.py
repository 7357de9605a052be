"""The sizes of the machine: unknown for a proof of all sizes, known for an instance.

Unknown sizes are numbers of which only a lower bound is assumed. Tables, enumerations and operations
have no end when proved: `NUM_INDEXES`, `NUM_RANKS` and `NUM_STEPS` are not in the language of proofs, their domains run
over all numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import z3

from kvproof.models.translation.terms import Number, Truth, is_between
from kvproof.spec.language import Domain
from kvproof.spec.sizes import SizesOf
from kvproof.spec.systems import BLOCK_MANAGERS, System

WITHOUT_END = frozenset({"NUM_INDEXES", "NUM_RANKS", "NUM_STEPS"})
DERIVED = frozenset({"NULL", "NUM_ENTRIES"})
SMALLEST = {"BLOCK_SIZE": 1}  # every other size may be 0


def _names(system: System) -> list[str]:
    """The sizes that the domains of a specification name, and the one that splits the blocks in two pools."""
    split = ["NUM_GPU_BLOCKS"] if system is BLOCK_MANAGERS else []
    sizes = [one.size for one in system.domains.values() if isinstance(one.size, str)]
    return [name for name in dict.fromkeys([*split, *sizes]) if name not in WITHOUT_END | DERIVED]


@dataclass
class Universe:
    """The sizes under the names that the text uses. sizes: the known sizes of an instance; None for all sizes."""

    sizes: SizesOf[Any] | None = None
    system: System = BLOCK_MANAGERS
    numbers: dict[str, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sizes is not None:
            self.numbers = {name: value for name, value in self.sizes.names().items() if isinstance(value, int)}
            return
        self.numbers = {name: z3.Int(name) for name in _names(self.system)}
        if self.system is BLOCK_MANAGERS:
            self.numbers["NULL"] = self.numbers["NUM_BLOCKS"]
            self.numbers["NUM_ENTRIES"] = self.numbers["NUM_BLOCKS"] + 1

    @property
    def is_concrete(self) -> bool:
        return self.sizes is not None

    def size(self, domain: Domain) -> Number | None:
        """The number of members of the domain; None if it has no end."""
        if isinstance(domain.size, str):
            return self.numbers.get(domain.size)
        return domain.size

    def contains(self, domain: Domain, term: Number) -> Truth:
        if domain.is_signed:
            return True
        return is_between(0, term, self.size(domain))

    def members(self, domain: Domain) -> range | None:
        """The members of the domain; None if its size is unknown or it has no end."""
        size = self.size(domain)
        return range(size) if self.is_concrete and isinstance(size, int) else None

    def assumptions(self) -> Iterator[z3.BoolRef]:
        """The assumptions about unknown sizes: GPU blocks are some of all blocks, and a block has at least one slot."""
        if self.is_concrete:
            return
        gpu = self.numbers.get("NUM_GPU_BLOCKS", 0)  # stores have no such number
        for name in _names(self.system):
            low = gpu if name == "NUM_BLOCKS" else SMALLEST.get(name, 0)
            at_least = self.numbers[name] >= low
            assert isinstance(at_least, z3.BoolRef)
            yield at_least
