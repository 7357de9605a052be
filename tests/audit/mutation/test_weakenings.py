"""Weakenings of the text: there is one of every kind, and what still proves everything is noticed by the pin."""

from functools import cache

import pytest

from kvproof.audit.faults.catalogue import HANDMADE, by_hand
from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import faulty_text, functions_changed, source_of
from kvproof.audit.mutation.text_judges import TextJudges
from kvproof.audit.mutation.weakenings import weakenings
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.text import specification
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED


@cache
def every_one() -> list[Fault]:
    return [*weakenings(), *by_hand()]


@cache
def by_id() -> dict[str, Fault]:
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
    assert sum(one.kind == HANDMADE for one in by_id().values()) == len(by_hand()) == 42


def test_each_replaces_functions_of_the_text_by_others() -> None:
    text = specification()
    for one in by_id().values():
        changed = faulty_text(one, text)
        for name in functions_changed(one):
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
    fault = next(one for one in every_one() if one.id.startswith(id))
    assert difference in judges.pin_difference(fault)


def test_the_text_as_it_is_differs_in_nothing(judges: TextJudges) -> None:
    body = source_of(judges.plain.functions["widen"][0]).partition("\n")[2].strip()
    unchanged = Fault("guards/nothing", (Edit("widen", "", body),), judges.plain.system.name)
    assert judges.pin_difference(unchanged) == judges.lint(unchanged) == judges.open_obligation(unchanged) == ""


@pytest.mark.parametrize("id", [one.id for one in by_hand() if "return" in one.id])
def test_a_false_text_that_python_reads_otherwise_is_refused(judges: TextJudges, id: str) -> None:
    assert judges.lint(by_id()[id]).startswith("lint one-return: ")
    with pytest.raises(NotInLanguage, match="return"):
        judges.open_obligation(by_id()[id])


def test_a_proof_notices_a_false_faulty_text_a_quantifier_within_a_comprehension(judges: TextJudges) -> None:
    found = judges.open_obligation(by_id()["by hand/false text: a quantifier within a comprehension"])
    assert found.startswith("specification/mark_computed/")
