"""The sizes for which a specification runs, and what a machine of these sizes can do without."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from kvproof.spec.language import Domain
from kvproof.spec.syntax_trees import written
from kvproof.spec.systems import BLOCK_MANAGERS, System
from kvproof.spec.text import flight_rules
from kvproof.spec.text.state import State
from kvproof.spec.texts import RULE_TEXTS

OF_TRANSFERS = ("send_entry", "arrive")
AnyState = TypeVar("AnyState")


class SizesOf(Generic[AnyState]):
    """The sizes of a machine of one specification."""

    system: ClassVar[System]
    has_transfers: bool

    def numbers(self) -> dict[str, int]:
        """The sizes under the names that the text uses."""
        raise NotImplementedError

    def names(self) -> dict[str, Any]:
        """The sizes and domains under the names that the text uses."""
        numbers: dict[str, Any] = dict(self.numbers())
        domains = self.system.domains.items()
        return numbers | {name: range(_size(d, numbers)) for name, d in domains if d.size is not None}

    @property
    def longest(self) -> int:
        """A number above all places of a table or enumeration that rules have used."""
        raise NotImplementedError

    @property
    def unwritten(self) -> frozenset[str]:
        """Fields that no rule writes in a machine of these sizes, so that copies of a state may share them."""
        return frozenset()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rules that a machine of these sizes does not have."""
        return ()


@dataclass(frozen=True)
class Sizes(SizesOf[State]):
    """The sizes of a machine: blocks of each pool, slots of a block, and limits of sequences, entries and flights."""

    num_gpu_blocks: int
    num_host_blocks: int
    block_size: int
    num_seqs: int
    num_indexes: int
    num_flights: int = 0
    has_transfers: bool = True  # whether a flight may fill a block; if not, no rule begins such a flight

    system = BLOCK_MANAGERS

    def numbers(self) -> dict[str, int]:
        """The sizes under the names that the text uses."""
        num_blocks = self.num_gpu_blocks + self.num_host_blocks
        return {
            "NUM_GPU_BLOCKS": self.num_gpu_blocks,
            "NUM_BLOCKS": num_blocks,
            "NULL": num_blocks,
            "NUM_ENTRIES": num_blocks + 1,
            "NUM_SEQS": self.num_seqs,
            "NUM_INDEXES": self.num_indexes,
            "NUM_FLIGHTS": self.num_flights,
            "NUM_RANKS": max(num_blocks, self.num_seqs, self.num_flights) + 1,
            "NUM_STEPS": self.num_seqs * self.num_indexes + 1,
            "BLOCK_SIZE": self.block_size,
        }

    @property
    def longest(self) -> int:
        """One more than the entries of a table."""
        return self.num_indexes + 1

    @property
    def unwritten(self) -> frozenset[str]:
        """Without flights, the fields that only flights change."""
        return frozenset() if self.num_flights > 0 else _flight_fields()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Without transfers, their rules."""
        return () if self.has_transfers else OF_TRANSFERS


def _size(domain: Domain, numbers: dict[str, Any]) -> int:
    assert domain.size is not None
    return int(numbers[domain.size]) if isinstance(domain.size, str) else domain.size


@functools.cache
def _flight_fields() -> frozenset[str]:
    """The fields that only rules of operations in flight write."""
    return frozenset(written(flight_rules) - written(*(text for text in RULE_TEXTS if text is not flight_rules)))
