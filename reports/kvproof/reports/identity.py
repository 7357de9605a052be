"""The identity of a finding: what makes two findings the same, and when a known one covers one that is found.

The identity is the property and the signature. A signature is a mechanism, and in brackets the features of the
configuration that the shortest run uses:

    reserve NoFreeBlocksError: raised in BlockTable.append of block_table.py after can_swap_in said OK (window)

A known finding covers one that is found if both have the same property and mechanism, and the run that was found uses
all features of the known one: a fault that now shows without the window, and did not before, is another one. A search
may fail to make a run as short as another search did, so a run with more features shows the same fault.

Documents that were written before signatures were made of claims have former signatures, without features. They cover
each finding that would have had that signature then.
"""

import builtins
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

FEATURES = re.compile(r" \(([a-z_]+(?:, [a-z_]+)*)\)$")


@dataclass(frozen=True)
class Identity:
    """What makes findings the same. former: the signature that an older kvproof gave the finding; empty if it did."""

    property: str
    signature: str
    former: str = field(default="", compare=False)

    @builtins.property
    def features(self) -> frozenset[str]:
        """The features of the configuration that the run uses."""
        return parts_of(self.signature)[1]

    def may_be_hidden_by(self, others: Iterable["Identity"]) -> bool:
        """Whether a search that met one of the others may have missed this finding because of it.

        A run with all features of the other one mostly ends there, and half of the later runs leave one of them out.
        """
        return any(one.features <= self.features for one in others)

    def is_covered_by(self, known: "Identity", is_same: Callable[[str, str], bool] = str.__eq__) -> bool:
        """Whether a known finding is this one.

        known: without `former`, it is of a document that an older kvproof wrote, or of a list that a user did. is_same:
        compares a mechanism with the known one, which may be a pattern.
        """
        (mechanism, used), (other, needed) = parts_of(self.signature), parts_of(known.signature)
        is_found = (used >= needed and is_same(mechanism, other)) or is_same(self.signature, known.signature)
        may_be_former = self.former and not known.former
        is_former = bool(may_be_former and is_same(self.former, known.signature))
        return self.property == known.property and (is_found or is_former)


def signature_of(mechanism: str, features: Iterable[str]) -> str:
    """The signature of a mechanism with these features."""
    names = ", ".join(sorted(features))
    return f"{mechanism} ({names})" if names else mechanism


@lru_cache(1 << 12)
def parts_of(signature: str) -> tuple[str, frozenset[str]]:
    """The mechanism of a signature, and its features."""
    if (found := FEATURES.search(signature)) is None:
        return signature, frozenset()
    return signature[: found.start()], frozenset(found[1].split(", "))


def operation_named(signature: str) -> str:
    """The operation of a signature; or the call that raised, and the type of the exception."""
    return signature.partition(":")[0]


def what_broke(signature: str) -> str:
    """The mechanism of a signature without its operation."""
    return parts_of(signature)[0].partition(": ")[2]
