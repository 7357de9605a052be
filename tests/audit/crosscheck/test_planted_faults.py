"""Faults of the translator: each is planted, and the comparison of the specification finds it."""

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.audit.crosscheck.comparison import Mismatch
from kvproof.audit.crosscheck.specification import SpecificationCheck
from kvproof.models.translation import expressions, maps, rules, states, translator
from kvproof.models.translation.conditions import Conditions
from kvproof.models.translation.sizes import Universe
from kvproof.models.translation.terms import for_some, is_between

Plant = Callable[[pytest.MonkeyPatch], None]


def merge_keeps_the_other_side(patch: pytest.MonkeyPatch) -> None:
    """After an `if`, the state is that of the side that was not taken."""
    patch.setattr(rules, "merged", lambda condition, yes, no: maps.merged(condition, no, yes))


def write_is_seen_at_every_index_of_the_row(patch: pytest.MonkeyPatch) -> None:
    """A write with two indexes is read back for any second index."""
    put = maps.Map.put
    patch.setattr(
        maps.Map,
        "put",
        lambda self, path, value: put(self, path[:1], value) if self.arity == 2 else put(self, path, value),
    )


def quantifier_needs_one_only(patch: pytest.MonkeyPatch) -> None:
    """`all` is translated as `any`."""
    patch.setattr(states, "for_all", for_some)


def domains_lack_their_last_member(patch: pytest.MonkeyPatch) -> None:
    """A quantifier and a parameter do not reach the last member of their domain."""

    def contains(self: Universe, domain: Any, term: Any) -> Any:
        size = self.size(domain)
        return is_between(0, term, None if size is None else size - 1)

    patch.setattr(Universe, "contains", contains)


def rows_are_compared_to_their_end(patch: pytest.MonkeyPatch) -> None:
    """`same` ignores where it shall stop."""
    are_same = states.StateExpressions._are_same
    patch.setattr(
        states.StateExpressions,
        "_are_same",
        lambda self, one, other, stop: are_same(self, one, other, self.constants["BLOCK_SIZE"]),
    )


def choices_are_swapped(patch: pytest.MonkeyPatch) -> None:
    """`a if c else b` gives b if c holds."""
    patch.setattr(expressions, "chosen", lambda condition, one, other: maps.chosen(condition, other, one))


def guards_ignore_their_branch(patch: pytest.MonkeyPatch) -> None:
    """A guard on one side of an `if` is required on both."""
    patch.setattr(Conditions, "under_path", lambda self, formula: formula)


def sizes_are_one_larger(patch: pytest.MonkeyPatch) -> None:
    """NULL is not the number of blocks but the one after it."""
    make = Universe.__post_init__

    def made(self: Universe) -> None:
        make(self)
        if self.sizes is None:
            self.numbers["NULL"] = self.numbers["NUM_BLOCKS"] + 1

    patch.setattr(Universe, "__post_init__", made)


def first_state_is_constant(patch: pytest.MonkeyPatch) -> None:
    """The fields whose first value is a function of the ids begin with 0."""
    patch.setattr(
        translator.Translator, "_start", lambda self, field: lambda *at: 0 if callable(field.start) else field.start
    )


def splice_takes_one_slot_too_many(patch: pytest.MonkeyPatch) -> None:
    """`spliced` takes the slot at its stop from the source too."""
    patch.setattr(states, "is_between", lambda low, term, end: is_between(low, term, None if end is None else end + 1))


FAULTS: tuple[Plant, ...] = (
    merge_keeps_the_other_side,
    write_is_seen_at_every_index_of_the_row,
    quantifier_needs_one_only,
    domains_lack_their_last_member,
    rows_are_compared_to_their_end,
    choices_are_swapped,
    guards_ignore_their_branch,
    sizes_are_one_larger,
    first_state_is_constant,
    splice_takes_one_slot_too_many,
)
SOON = (sizes_are_one_larger, first_state_is_constant, domains_lack_their_last_member)  # before the first step


@pytest.mark.parametrize(
    "plant", [pytest.param(one, marks=[] if one in SOON else [pytest.mark.long], id=one.__name__) for one in FAULTS]
)
def test_a_planted_fault_of_the_translator_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(Mismatch, match="the translator gives"):
        SpecificationCheck(seed=1).run(100_000)


def test_a_mismatch_names_the_place_both_values_and_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes_are_one_larger(monkeypatch)
    with pytest.raises(Mismatch) as found:
        SpecificationCheck(seed=1).run(1)
    assert "NULL: the translator gives 6, the native run gives 5, in\n  Sizes(num_gpu_blocks=3" in str(found.value)
