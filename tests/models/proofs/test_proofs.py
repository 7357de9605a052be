"""Every obligation is proved; and obligations about a faulty text are not."""

import ast
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import msgspec
import pytest
from tests.models.proofs.proving import SAMPLED, baseline, decided, differences, grown, is_recorded, not_proved, proved

from kvproof.models import proof_record
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.contracts import contract_obligations
from kvproof.models.proofs.induction import INITIAL, SUITE, Induction
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.solvers.solving import ProofOutcome, Settings, decide
from kvproof.models.suites import OF_CODE, SUITES, obligations_of
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.models.vacuity import Hypotheses
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED, Contract
from kvproof.spec.verdict import Verdict

RULES = {rule.__name__: rule for rule in COLLECTED.rules}
EFFORT_MAX = 1_000_000  # for an obligation of a faulty text: about a third of a second


@pytest.fixture(scope="module")
def obligations() -> list[Obligation]:
    """The obligations of every suite but that of the small classes, which `tests/models/concolic` makes and proves."""
    return [one for suite in SUITES if suite != OF_CODE for one in obligations_of(suite)]


@pytest.fixture(scope="module")
def every_obligation(obligations: list[Obligation]) -> list[Obligation]:
    return [*obligations, *obligations_of(OF_CODE)]


@pytest.fixture(scope="module")
def outcomes(obligations: list[Obligation]) -> list[ProofOutcome]:
    return proved(obligations)


@pytest.fixture(scope="module")
def all_outcomes(every_obligation: list[Obligation]) -> list[ProofOutcome]:
    return decided(every_obligation)


def test_every_rule_is_asked_about_every_invariant(obligations: list[Obligation]) -> None:
    ids = [one.id for one in obligations]
    assert len(ids) == len(set(ids)) > 2000
    asked = {(one.subject, one.claim) for one in obligations if one.suite == SUITE}
    names = [claim.name for claim in COLLECTED.invariants]
    assert {(subject, name) for subject in (INITIAL, *RULES) for name in names} <= asked
    per_property = Counter(one.property for one in obligations)
    assert per_property["well-defined"] > 1000


def test_the_claims_and_the_assumptions_are_those_that_are_pinned(obligations: list[Obligation]) -> None:
    """`make proofs-accept` pins what is proved today."""
    assert differences(obligations, SUITES.keys() - {OF_CODE}) == []


def test_what_is_not_recorded_and_a_sample_of_what_is_are_proved(outcomes: list[ProofOutcome]) -> None:
    assert not_proved(outcomes) == []
    assert len(outcomes) > 2000 // SAMPLED
    assert {one.obligation.suite for one in outcomes if not one.is_trivial} == SUITES.keys() - {OF_CODE}


def test_a_record_of_another_pin_or_another_solver_covers_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_another_solver = msgspec.json.decode(proof_record.FILE.read_bytes()) | {"solvers": ["z3 0.0.0"]}
    (file := tmp_path / "record.json").write_bytes(msgspec.json.encode(of_another_solver))
    with monkeypatch.context() as patch:
        patch.setattr(proof_record, "FILE", file)
        assert not is_recorded()
    monkeypatch.setattr(proof_record, "digest_of_pin", lambda: "another")
    assert not is_recorded()


@pytest.mark.long
def test_every_obligation_is_proved_within_the_effort_of_the_baseline(all_outcomes: list[ProofOutcome]) -> None:
    assert not_proved(all_outcomes) == []
    assert grown(all_outcomes) == []


@pytest.mark.long  # `kvproof prove` does the same in every run
def test_every_set_of_hypotheses_has_a_model(every_obligation: list[Obligation]) -> None:
    found = Hypotheses()
    for search in [search for one in every_obligation if (search := found.note(one)) is not None]:
        found.searched(decide(search))
    deque(found.look_in(NativeStates()), maxlen=0)
    found.decide()
    assert (found.contradictory, found.undecided) == ([], [])
    assert found.num_satisfied > 250


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_every_obligation_is_proved_whatever_the_seed(every_obligation: list[Obligation], seed: int) -> None:
    assert not_proved(decided(every_obligation, seed)) == []


def test_the_baseline_of_efforts_has_every_subject(obligations: list[Obligation]) -> None:
    """Of a subject that is not in it, no effort is compared."""
    ours = {f"{one.suite}/{one.subject}" for one in obligations}
    of_code = {subject for subject in baseline().subjects if subject.startswith(f"{OF_CODE}/")}
    assert (baseline().subjects.keys() - of_code, bool(of_code)) == (ours, True)


def test_no_proof_takes_half_as_much_effort_again_as_the_baseline(outcomes: list[ProofOutcome]) -> None:
    """`kvproof prove --save-baseline tests/models/proofs/efforts.json` writes the baseline."""
    assert grown(outcomes) == []


def changed(name: str, change: Callable[[str], str]) -> Text:
    """The specification with one function rewritten."""
    text = specification()
    before = ast.unparse(text.functions[name][0])
    after = change(before)
    assert after != before, "the change changes nothing"
    (function,) = ast.parse(after).body
    assert isinstance(function, ast.FunctionDef)
    return text.replaced(name, function)


@cache
def unchanged(rule: str) -> list[Obligation]:
    """The obligations of a rule in the specification as it is."""
    return list(induction().rule(RULES[rule]))


@cache
def induction() -> Induction:
    return Induction(Translator())


def verdicts(text: Text | None, rule: str, claim: str) -> list[bool]:
    """Whether each obligation of the rule that begins with the claim is proved: of a changed text, or as it is."""
    obligations = unchanged(rule) if text is None else Induction(Translator(text=text)).rule(RULES[rule])
    return [is_proved(one) for one in obligations if one.claim.startswith(claim)]


def is_proved(obligation: Obligation) -> bool:
    return decide(obligation, Settings(effort_max=EFFORT_MAX)).answer.verdict is Verdict.PROVED


@pytest.mark.parametrize(
    ("function", "old", "new", "rule", "claim"),
    [
        ("gain", "state.refcount[block] += 1", "pass", "reserve", "every_holder_is_counted"),
        ("evict", "== EVICTABLE", "!= FREE", "evict", "status_tells_who_refers"),
        ("end_swap", "= 1 - state.home[seq]", "= state.home[seq]", "end_swap", "entries_are_in_their_pool"),
        ("promote", "index < state.num_full[seq]", "True", "promote", "holders_of_a_cached_block_are_full_there"),
        ("reserve", "state.num_blocks[seq] += 1", "state.num_blocks[seq] += 2", "reserve", "tables_name_blocks"),
        ("mark_computed", "== BLOCK_SIZE,", ">= 0,", "mark_computed", "computed_blocks_are_cached_and_complete"),
    ],
)
def test_a_rule_made_wrong_is_not_proved(function: str, old: str, new: str, rule: str, claim: str) -> None:
    assert verdicts(None, rule, claim) == [True]
    assert verdicts(changed(function, lambda text: text.replace(old, new)), rule, claim) == [False]


def test_a_subscript_out_of_range_is_not_proved() -> None:
    text = changed(
        "mark_computed", lambda old: old.replace("state.computed[block] = True", "state.computed[block + 1] = True")
    )
    assert verdicts(None, "mark_computed", "state.computed[block] has a Block in range") == [True]
    assert verdicts(text, "mark_computed", "state.computed[block + 1] has a Block in range") == [False]


def test_a_check_that_does_not_hold_is_not_proved() -> None:
    text = changed("begin_free", lambda old: old.replace("check(state.live[seq]", "check(not state.live[seq]"))
    assert verdicts(None, "begin_free", "check state.live[seq]") == [True]
    assert verdicts(text, "begin_free", "check not state.live[seq]") == [False]


def test_each_of_two_checks_with_one_text_is_proved() -> None:
    check = "check(state.cached[block], 'cache-content')"
    text = changed(
        "mark_computed",
        lambda old: old.replace(
            "state.computed[block] = True", f"{check}\n    state.cached[block] = False\n    {check}"
        ),
    )
    assert verdicts(text, "mark_computed", "check state.cached[block]") == [False]


def test_a_quantifier_within_a_comprehension_captures_no_variable() -> None:
    """Each refcount grows if there is another block; read as `b != b` it would stay as it was."""
    more = "state.refcount = [state.refcount[x] + (1 if any(b != x for b in BLOCKS) else 0) for x in BLOCKS]"
    text = changed("mark_computed", lambda old: f"{old}\n    {more}")
    assert verdicts(None, "mark_computed", "only_holders_are_counted") == [True]
    assert verdicts(text, "mark_computed", "only_holders_are_counted") == [False]


def test_a_first_state_made_wrong_is_not_proved() -> None:
    text = changed("all_free", lambda old: old.replace("pool_size(pool) if", "pool_size(pool) + 1 if"))
    claims = {one.claim for one in Induction(Translator(text=text)).initial() if not is_proved(one)}
    assert "counters_add_up" in claims


def test_an_invariant_that_is_no_invariant_is_not_proved() -> None:
    text = changed("counters_add_up", lambda old: old.replace("state.count[p][FREE] >= 0", "state.count[p][FREE] >= 1"))
    assert verdicts(None, "reserve", "counters_add_up") == [True]
    assert verdicts(text, "reserve", "counters_add_up") == [False]


def test_an_untouched_invariant_is_kept_as_it_stands() -> None:
    obligations = unchanged("begin_swap")
    kept = {one.claim for one in obligations if one.is_trivial()}
    assert "counters_add_up" in kept  # begin_swap writes `moving` only
    assert "entries_are_in_their_pool" not in kept


def test_a_contract_that_an_operation_does_not_keep_is_not_proved() -> None:
    contract = next(one for one in CONTRACTS if one.rule == "drop_last")
    text = changed("free_invariant", lambda old: old.replace("state.refcount[b] ==", "state.refcount[b] <"))
    claims = {text: is_kept for text, is_kept in _contract_verdicts(text, contract) if "refcount" in text}
    assert claims != {}
    assert not any(is_kept for text, is_kept in claims.items() if text.startswith("begins"))


def test_an_operation_whose_rule_may_be_refused_on_its_way_is_not_proved() -> None:
    contract = next(one for one in CONTRACTS if one.rule == "drop_last")
    text = changed("free_invariant", lambda old: old.replace("state.live[seq] and state.ending[seq] and", ""))
    enabled = [is_kept for claim, is_kept in _contract_verdicts(text, contract) if claim.startswith("is enabled")]
    assert False in enabled


def _contract_verdicts(text: Text, contract: Contract) -> Iterator[tuple[str, bool]]:
    obligations = contract_obligations(Induction(Translator(text=text)), contract)
    return ((one.claim, is_proved(one)) for one in obligations if one.claim.startswith(("begins", "is enabled")))
