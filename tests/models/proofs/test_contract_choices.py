"""A contract says that the next firing can be chosen: a witness shows it, and nothing less does."""

import ast
import copy
import functools
from collections.abc import Callable
from dataclasses import replace

import pytest

from kvproof.models.obligation import Obligation
from kvproof.models.proofs import least_element_lemma
from kvproof.models.proofs.contracts import Proof
from kvproof.models.proofs.induction import Induction
from kvproof.models.solvers.solving import Settings, decide
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import Least, contract, least
from kvproof.spec.syntax_trees import made_function
from kvproof.spec.text.cache_rules import evict, mark_computed
from kvproof.spec.text.state import State
from kvproof.spec.verdict import Verdict

BY_RULE = {one.rule: one for one in CONTRACTS}
HAS_CHOICE = "has choice"
EFFORT_MAX = 150_000  # more than the hardest of these proofs takes


def returning(text: Text, name: str, expression: str) -> Text:
    """The text in which a function returns another expression."""
    function, _ = text.functions[name]
    made = made_function(name, function.args, [ast.Return(ast.parse(expression, mode="eval").body)], function)
    return text.replaced(name, ast.fix_missing_locations(made))


def without(text: Text, name: str, part: str) -> Text:
    """The text in which a conjunct of a function is left out."""
    (statement,) = [one for one in text.functions[name][0].body if isinstance(one, ast.Return)]
    assert isinstance(statement.value, ast.BoolOp)
    kept = [one for one in map(ast.unparse, statement.value.values) if part not in one]
    assert len(kept) == len(statement.value.values) - 1
    return returning(text, name, " and ".join(f"({one})" for one in kept))


def is_proved(obligation: Obligation) -> bool:
    return decide(obligation, Settings(effort_max=EFFORT_MAX)).answer.verdict is Verdict.PROVED


@functools.cache
def proof_of(rule: str) -> tuple[Proof, Obligation]:
    """The proof of a contract, and its obligation that a choice exists."""
    proof = Proof(Induction(Translator()), BY_RULE[rule])
    return proof, next(one for one in proof.obligations() if one.claim == HAS_CHOICE)


def has_choice(rule: str, text: Text, claim: str = HAS_CHOICE) -> bool:
    """Whether the witnesses of a text satisfy a choice of that text, from what the specification assumes."""
    proof, obligation = proof_of(rule)
    changed, translator = copy.copy(proof), copy.copy(proof.induction.translator)
    translator.text = text
    changed.now = replace(proof.now, translator=translator)
    return is_proved(next(one for one in changed.has_choice(obligation.hypotheses) if one.claim == claim))


@pytest.mark.parametrize(
    ("rule", "choice"),
    [(contract.rule, choice) for contract in CONTRACTS for _, choice in contract.firings if choice is not None],
)
def test_a_choice_that_nothing_satisfies_is_noticed(rule: str, choice: str) -> None:
    assert not has_choice(rule, returning(specification(), choice, "False"))


@pytest.mark.parametrize(
    ("rule", "invariant", "part"),
    [
        ("append", "append_invariant", "append_cost(start"),
        ("admit", "admission_invariant", "unused_so_far"),
        ("move_entry", "swap_invariant", "free_blocks_so_far"),
        ("send_entry", "transfer_invariant", "free_targets_so_far"),
        ("evict", "eviction_invariant", "unused_in"),
    ],
)
def test_a_can_choose_that_says_nothing_is_noticed(rule: str, invariant: str, part: str) -> None:
    """Without that part of the loop invariant nothing else says that there is a block to choose."""
    contract = BY_RULE[rule]
    assert contract.can_choose is not None
    text = returning(without(specification(), invariant, part), contract.can_choose, "True")
    obligations = Proof(Induction(Translator(text=text)), contract).obligations()
    assert not is_proved(next(one for one in obligations if one.claim == HAS_CHOICE))


@pytest.mark.parametrize(
    ("rule", "witness", "instead"),
    [
        ("append", "stop_to_append", "BLOCK_SIZE"),
        ("admit", "last_entry", "state.num_blocks[prompt.seq]"),
        ("move_entry", "next_leader", "swap.seq_of[swap.num_fired]"),
        ("send_entry", "flight_to_send", "transfer.next_index[transfer.num_fired]"),
    ],
)
def test_a_witness_that_does_not_satisfy_the_choice_is_noticed(rule: str, witness: str, instead: str) -> None:
    assert not has_choice(rule, returning(specification(), witness, instead))


@pytest.mark.parametrize(
    ("expression", "claim"),
    [
        ("last_used[block] <= last_used[other]", "goes_before: nothing goes before itself"),
        ("last_used[block] != last_used[other]", "goes_before: it is transitive"),
    ],
)
def test_what_the_lemma_of_the_least_element_requires_is_proved(expression: str, claim: str) -> None:
    text = specification()
    assert has_choice("evict", text, claim)
    assert not has_choice("evict", returning(text, "goes_before", expression), claim)


@pytest.mark.parametrize("left_out", [None, 0, 1, 3])
def test_the_lemma_of_the_least_element_is_proved_from_all_that_it_assumes(left_out: int | None) -> None:
    base, step = least_element_lemma.obligations("arithmetic")
    assert is_proved(base)
    assumed = [one for place, one in enumerate(step.hypotheses) if place != left_out]
    step = Obligation(step.suite, step.subject, step.claim, step.property, tuple(assumed), step.goal)
    assert is_proved(step) == (left_out is None)


def test_a_parameter_without_a_witness_is_refused() -> None:
    def some_claim(state: State) -> bool:
        return state.live[0]

    mark: Callable[..., object] = contract(
        "total-calls", evict, precondition=some_claim, variant=some_claim, loop_invariant=some_claim
    )
    with pytest.raises(TypeError, match=r"some_claim: give a witness for each of \['block'\] of evict"):
        mark(some_claim)


def test_a_choice_without_can_choose_is_refused() -> None:
    """Nothing would say that the operation has a choice, so a choice that is never possible would be proved."""

    def some_claim(state: State) -> bool:
        return state.live[0]

    mark: Callable[..., object] = contract(
        "total-calls",
        evict,
        precondition=some_claim,
        variant=some_claim,
        loop_invariant=some_claim,
        witnesses={evict: {"block": some_claim}},
    )
    with pytest.raises(TypeError, match="some_claim: give can_choose"):
        mark(some_claim)


def test_two_least_elements_of_one_name_are_refused() -> None:
    """The lemma would say of one unknown that it is the least of both sets, which may be false."""

    def some_claim(state: State) -> bool:
        return state.live[0]

    def some_number(state: State) -> int:
        return state.refcount[0]

    chosen: dict[str, Callable[..., object] | Least] = {"block": least(some_claim, some_claim, some_number)}
    mark: Callable[..., object] = contract(
        "total-calls",
        evict,
        precondition=some_claim,
        variant=some_number,
        loop_invariant=some_claim,
        can_choose=some_claim,
        others={mark_computed: some_claim},
        witnesses={evict: chosen, mark_computed: chosen},
    )
    with pytest.raises(TypeError, match="some_claim: two least elements have one name"):
        mark(some_claim)


def test_a_function_that_chooses_for_several_rules_is_read_once() -> None:
    claims = [one.claim for one in Proof(Induction(Translator()), BY_RULE["move_entry"]).obligations()]
    assert len(claims) == len(set(claims))
    assert "next_seq: all that it reads is there" in claims
