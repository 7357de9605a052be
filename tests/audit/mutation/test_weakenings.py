"""Weakenings of the text: there is one of every kind, and what still proves everything is noticed by the pin."""

from functools import cache

import pytest

from kvproof.audit.mutation.handmade import FAULTS, handmade
from kvproof.audit.mutation.text_judges import TextJudges
from kvproof.audit.mutation.weakenings import Weakening, source_of, weakenings
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.text import specification
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED


@cache
def every_one() -> list[Weakening]:
    return [*weakenings(), *handmade()]


@cache
def by_id() -> dict[str, Weakening]:
    return {one.id: one for one in every_one()}


@pytest.fixture(scope="module")
def judges() -> TextJudges:
    return TextJudges()


def test_there_are_hundreds_each_with_a_name_of_its_own() -> None:
    assert len(by_id()) == len(every_one()) > 450
    claims = [claim.name for claim in (*COLLECTED.theorems, *COLLECTED.invariants)]
    assert {
        name for name in claims if f"theorems/{name}: True" in by_id() or f"invariants/{name}: True" in by_id()
    } == set(claims)
    assert {f"contracts/{one.variant}: nothing is left" for one in CONTRACTS} <= by_id().keys()
    assert sum(one.kind == "by hand" for one in by_id().values()) == len(FAULTS) == 42


def test_each_replaces_functions_of_the_text_by_others() -> None:
    text = specification()
    for one in by_id().values():
        changed = one.text(text)
        for name in one.sources:
            assert source_of(changed.functions[name][0]) != source_of(text.functions[name][0]), one.id


@pytest.mark.parametrize(
    ("id", "difference"),
    [
        (
            "by hand/theorem: at rest, a tautology",
            "the goal of specification/theorem/at_rest_every_block_is_unused changed",
        ),
        ("guards/evict: block != 0", "(specification/evict) changed: + guard: the block is not the first"),
        ("contracts/freeing_can_continue: True", "has choice changed"),
        ("checks/catch_up: without check(num_done(", "vanished obligation: specification/catch_up/check num_done("),
    ],
)
def test_a_claim_that_asks_less_is_a_difference_from_the_pin(judges: TextJudges, id: str, difference: str) -> None:
    weakening = next(one for one in every_one() if one.id.startswith(id))
    assert difference in judges.pin_difference(weakening)


def test_the_text_as_it_is_differs_in_nothing(judges: TextJudges) -> None:
    unchanged = Weakening("guards", "nothing", {"widen": source_of(judges.plain.functions["widen"][0])})
    assert judges.pin_difference(unchanged) == judges.lint(unchanged) == judges.open_obligation(unchanged) == ""


@pytest.mark.parametrize("name", [name for name in FAULTS if "return" in name])
def test_a_false_text_that_python_reads_otherwise_is_refused(judges: TextJudges, name: str) -> None:
    assert judges.lint(by_id()[f"by hand/{name}"]).startswith("lint one-return: ")
    with pytest.raises(NotInLanguage, match="return"):
        judges.open_obligation(by_id()[f"by hand/{name}"])


def test_a_proof_notices_a_false_text_with_a_quantifier_within_a_comprehension(judges: TextJudges) -> None:
    found = judges.open_obligation(by_id()["by hand/false text: a quantifier within a comprehension"])
    assert found.startswith("specification/mark_computed/")
