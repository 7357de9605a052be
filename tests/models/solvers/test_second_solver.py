"""A second solver answers the same questions, and the lemmas that it gets are true."""

import pytest
import z3

from kvproof.check.proving.questions import deciding
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.contracts import LOOP_INVARIANT, NUM_FIRED, contract_obligations
from kvproof.models.proofs.induction import Induction
from kvproof.models.proofs.instances import where_denied, where_next_fired
from kvproof.models.proofs.multiplication_lemma import by_lemma_where_divided, lesser_has_less
from kvproof.models.solvers import second_solver
from kvproof.models.solvers.second_solver import EFFORT_MAX, ask, version
from kvproof.models.solvers.solving import Settings, decide
from kvproof.models.translation.translator import Translator
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED
from kvproof.spec.verdict import Verdict

pytest.importorskip("cvc5")

X, Y, SIZE, N = z3.Ints("x y size n")
F = z3.Function("f", z3.IntSort(), z3.IntSort())
GROWS = Hypothesis("grows", z3.ForAll([X], F(X) > X))
RULES = {rule.__name__: rule for rule in COLLECTED.rules}


def obligation(claim: str, goal: z3.BoolRef, *hypotheses: Hypothesis) -> Obligation:
    return Obligation("arithmetic", "test", claim, "well-defined", hypotheses, goal)


def asked(one: Obligation) -> Verdict:
    return ask(*one.question(), Settings()).verdict


def test_both_solvers_give_the_same_answers() -> None:
    for one in (
        obligation("follows", F(F(Y)) > Y, GROWS),
        obligation("wrong", Y > 4, Hypothesis("positive", Y > 3)),
        obligation("of nothing", X * X >= 0),
    ):
        assert asked(one) is decide(one).answer.verdict


def test_an_answer_counts_its_effort_and_a_question_without_answer_its_reason() -> None:
    easy = ask(*obligation("follows", F(F(Y)) > Y, GROWS).question(), Settings())
    assert easy.effort == ask(*obligation("follows", F(F(Y)) > Y, GROWS).question(), Settings()).effort > 0
    cubes = obligation("114 is no sum of three cubes", X * X * X + Y * Y * Y + N * N * N != 114)
    answer = ask(*cubes.question(), Settings(timeout_seconds=0.1))
    assert answer.verdict is Verdict.UNKNOWN
    assert answer.reason != ""


def test_worker_processes_use_the_second_solver_when_it_is_selected() -> None:
    wanted = [obligation(f"number {number}", Y + number > number, Hypothesis("positive", Y > 0)) for number in range(3)]
    with deciding("1") as decide_all:
        decided = list(decide_all(wanted, Settings(), asker=ask))
    assert [one.answer.verdict for one in decided] == [Verdict.PROVED] * 3


SLOW = [pytest.param(rule, marks=pytest.mark.long) for rule in ("fork", "widen")]  # asked for any remainder, at last


@pytest.mark.parametrize("rule", [*SLOW, "begin_free", "hit"])
def test_a_claim_about_numbers_that_are_only_compared_is_proved_where_it_is_denied(rule: str) -> None:
    claims = Induction(Translator()).rule(RULES[rule])
    one = next(one for one in claims if one.claim == "the_window_left_only_what_is_not_read")
    there = where_denied(one)
    assert there.id == one.id
    assert len(there.hypotheses) == len(one.hypotheses) + 1
    assert asked(there) is Verdict.PROVED


def test_a_proof_for_any_remainder_counts_and_a_model_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(text: str, *_: object) -> tuple[str, str, int]:
        return run(text, {}, Settings()) if "any-mod" in text else ("unknown", "RESOURCEOUT", 0)

    run = second_solver._run
    monkeypatch.setattr(second_solver, "_run", answers)
    equal, size = Hypothesis("equal", X == Y), Hypothesis("a size", SIZE >= 1)
    assert asked(obligation("of equal numbers", X % SIZE == Y % SIZE, equal)) is Verdict.PROVED
    assert asked(obligation("less than the divisor", X % SIZE < SIZE, size)) is Verdict.UNKNOWN
    assert asked(obligation("nothing to divide", X == Y, size)) is Verdict.UNKNOWN


def test_the_form_of_a_denied_claim_implies_no_more_than_the_claim() -> None:
    before = Hypothesis("kept", z3.ForAll([X, Y], F(X) <= Y))
    wrong = obligation("kept", z3.ForAll([X, Y], F(X) + 1 <= Y), before)
    there = where_denied(wrong)
    assert decide(obligation("follows", there.hypotheses[1].formula, before)).answer.verdict is Verdict.PROVED
    assert decide(there).answer.verdict is not Verdict.PROVED
    assert where_denied(obligation("other", z3.ForAll([X], F(X) > 0), before)).hypotheses == (before,)
    assert where_denied(obligation("kept", F(Y) > 0, before)).goal.eq(F(Y) > 0)  # type: ignore[union-attr]


def test_a_hypothesis_about_all_firings_is_instantiated_for_the_next_one_only() -> None:
    so_far = Hypothesis(LOOP_INVARIANT, z3.And(N > 2, z3.ForAll([X], F(X) > X), z3.ForAll([X, Y], F(X) > F(Y) - SIZE)))
    one = obligation("next", F(N) > 3, so_far, Hypothesis(f"parameter {NUM_FIRED}", N >= 0))
    lemma = where_next_fired(one).hypotheses[-1]
    assert lemma.formula.eq(z3.And([F(N) > N]))
    assert decide(obligation("follows", lemma.formula, so_far)).answer.verdict is Verdict.PROVED
    assert where_next_fired(obligation("no contract", F(N) > 3, so_far)).hypotheses == (so_far,)


def test_an_obligation_of_a_swap_is_proved_by_the_first_strategy_once_it_is_instantiated_for_the_next_firing() -> None:
    contract = next(one for one in CONTRACTS if one.rule == "move_entry")
    claims = contract_obligations(Induction(Translator()), contract)
    one = next(one for one in claims if one.claim == "is enabled, by rehit_entry: the next entry is full")
    answer = ask(*where_next_fired(one).question(), Settings())
    assert answer.verdict is Verdict.PROVED
    assert answer.effort < EFFORT_MAX


def test_the_lemma_about_products_is_no_assumption_but_true() -> None:
    a_size = Hypothesis("a size", SIZE >= 1)
    lemma = obligation("lemma", lesser_has_less(SIZE, X, Y), a_size)
    assert decide(lemma).answer.verdict is asked(lemma) is Verdict.PROVED
    for one in by_lemma_where_divided(SIZE, (N + SIZE - 1) / SIZE == X, X * SIZE >= N):
        assert decide(obligation("lemma", one.formula, a_size)).answer.verdict is Verdict.PROVED


def test_the_lemma_is_instantiated_for_quotients_and_products() -> None:
    enough = Hypothesis("enough", z3.And(X * SIZE >= N, X * SIZE < N + SIZE, SIZE >= 1))
    goal = (N + SIZE - 1) / SIZE == X
    lemmas = by_lemma_where_divided(SIZE, goal, enough.formula)
    assert len(lemmas) == 1
    assert asked(obligation("as many as are needed", goal, enough, *lemmas)) is Verdict.PROVED
    assert by_lemma_where_divided(SIZE, X == Y, enough.formula) == ()


def test_the_version_of_the_second_solver_is_known() -> None:
    assert version().split(".")[0].isdigit()
