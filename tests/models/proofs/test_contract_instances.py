"""Each contract runs natively in a small instance, and hypotheses hold in the states of such runs."""

import pytest
import z3

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.models.obligation import Hypothesis, Obligation
from kvproof.models.proofs.contract_instances import INSTANCES, fired, machine_of, reached, runs
from kvproof.models.proofs.induction import Induction
from kvproof.models.proofs.satisfied import NativeStates
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.contract_run import ContractBroken, ContractRun
from kvproof.spec.contract_texts import CONTRACTS
from kvproof.spec.language import COLLECTED

BY_RULE = {one.rule: one for one in CONTRACTS}
RULES = {rule.__name__: rule for rule in COLLECTED.rules}


def changed(name: str, old: str, new: str) -> Text:
    """The specification with one function rewritten."""
    return text_with(specification(), Edit(name, old, new))


def test_every_contract_runs_to_its_end_and_fires_each_of_its_rules() -> None:
    assert list(runs([one.name for one in CONTRACTS])) == [(one.name, "", True) for one in CONTRACTS]


@pytest.mark.parametrize(
    ("rule", "name", "old", "new", "wrong"),
    [
        ("send_entry", "transfer_can_continue", "[FREE] > 0", "[FREE] > 9", "where can_choose is false"),
        ("admit", "next_is_hit", "state.live[prompt.seq]", "False", "nothing can be chosen after"),
        ("append", "append_invariant", "has_landed(state, given)", "False", "does not hold after append"),
        ("begin_free", "end_invariant", "state.moving[seq] == NONE", "False", "does not hold at the start"),
        ("drop_last", "free_variant", "- state.first[seq]", "+ 1", "is refused: an entry is left"),
        ("move_entry", "next_follows", "leader == swap.seq_of", "leader != swap.seq_of", "nothing can be chosen"),
        ("move_entry", "swap_variant", "- swap.num_fired", "", "4 was left before"),
        ("send_entry", "what_is_sent_is_read_back_when_it_has_arrived", "== NONE", "!= NONE", "postcondition"),
        ("evict", "evict", "forget(state, block)", "pass", "2 was left before evict(block 2), 2 after it"),
    ],
)
def test_an_operation_that_does_not_keep_its_contract_is_noticed(
    rule: str, name: str, old: str, new: str, wrong: str
) -> None:
    ((found, text, has_run),) = runs([BY_RULE[rule].name], changed(name, old, new))
    assert (found, has_run) == (BY_RULE[rule].name, True)
    assert wrong in text


def test_an_instance_that_cannot_begin_is_not_a_run() -> None:
    text = changed("end_precondition", "at_rest(start, seq)", "not at_rest(start, seq)")
    ((_, wrong, has_run),) = runs([BY_RULE["begin_free"].name], text)
    assert not has_run
    assert wrong == "a_sequence_at_rest_can_be_freed: the precondition does not hold in its instance"
    ((_, wrong, has_run),) = runs([BY_RULE["begin_free"].name], changed("admit", "not state.live", "state.live"))
    assert not has_run
    assert "admit(0, 0) is refused" in wrong


def test_a_rule_of_a_contract_that_never_fires_is_named() -> None:
    text = changed("one_is_evicted", "evictions_left(state, prompt) > 0", "evictions_left(state, prompt) > 7")
    ((_, wrong, has_run),) = runs([BY_RULE["admit"].name], text)
    assert (wrong != "") or not has_run


def test_a_firing_that_the_choice_does_not_allow_is_noticed() -> None:
    contract, machine = BY_RULE["evict"], machine_of(specification())
    instance = INSTANCES["evict"]
    run = ContractRun(machine, contract, reached(machine, instance), instance.values)
    run.begin()
    with pytest.raises(ContractBroken, match=r"evict\(block 0\) is not what is_first_to_go allows; with pool 0"):
        run.fire("evict", {"block": 0})
    run.fire("evict", {"block": 2})
    run.fire("evict", {"block": 1})
    with pytest.raises(ContractBroken, match="fires although nothing is left"):
        run.fire("evict", {"block": 0})


def test_the_hypotheses_of_a_rule_hold_where_it_fires() -> None:
    induction, states = Induction(Translator()), NativeStates()
    for name in ("widen", "arrive", "exchange"):
        *_, last = induction.rule(RULES[name])
        assert states.satisfy(last), name


def test_hypotheses_that_contradict_each_other_hold_in_no_state() -> None:
    induction, states = Induction(Translator()), NativeStates()
    *_, last = induction.rule(RULES["evict"])
    block, refcount = z3.Int("given_block"), z3.Function("refcount", z3.IntSort(), z3.IntSort())
    for formula, holds in ((refcount(block) == 0, True), (refcount(block) > 0, False)):
        assumed = (*last.hypotheses, Hypothesis("one more", formula))
        one = Obligation(last.suite, last.subject, last.claim, last.property, assumed, last.goal)
        assert states.satisfy(one) is holds


def test_the_way_to_an_instance_is_made_of_firings() -> None:
    machine = machine_of(specification())
    state = machine.first_state()
    before, rule, arguments = list(fired(machine, state, [("admit", 0, 0), ("append", 0, 1, [1, 2], 2)]))[-1]
    assert (rule, arguments) == ("append", (0, 1, [1, 2], 2))
    assert (before.num_full[0], state.num_full[0]) == (0, 1)
