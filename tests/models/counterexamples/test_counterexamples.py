"""A fault in the specification's text has a counterexample: a small state, confirmed by a native run."""

import copy

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.models.counterexamples.instances import INSTANCES, RULES, Candidate, ProofCounterexample, Search, case_of
from kvproof.models.counterexamples.picture import data, lines
from kvproof.models.counterexamples.replay import Replay
from kvproof.models.counterexamples.search import counterexample, false_clauses
from kvproof.models.obligation import Obligation
from kvproof.models.proofs.induction import Induction
from kvproof.models.solvers.solving import Allowance
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.models.vacuity import FIRING_EFFORT
from kvproof.spec.native import FIELDS, Machine

GUARD_OF_SHARED = "require(state.refcount[block] == 1, 'a shared block is replaced before it is written', 'cow-copied')"


def changed(*changes: tuple[str, str, str]) -> Text:
    """The specification with pieces of its functions replaced."""
    return text_with(specification(), *(Edit(*change) for change in changes))


def obligation_of(text: Text, rule: str, claim: str) -> Obligation:
    return next(one for one in Induction(Translator(text=text)).rule(RULES[rule]) if one.claim == claim)


def counterexample_of(text: Text, rule: str, claim: str) -> ProofCounterexample:
    found = counterexample(obligation_of(text, rule, claim), text)
    assert found is not None
    return found


def test_a_forgotten_increment_in_fork_is_shown() -> None:
    text = changed(("fork", "state.refcount[b] + 1 if", "state.refcount[b] if"))
    assert lines(counterexample_of(text, "fork", "every_holder_is_counted")) == [
        "Each sequence that holds a block is one of its enumerated holders.",
        "Afterwards this is false for s = 1, b = 0 (kvproof/spec/text/invariants.py:143):",
        "  implies(holds(state, s, b), state.rank[b][s] < state.refcount[b])",
        "  state.rank[b][s] is 1, state.refcount[b] is 1",
        "Before, with 2 GPU and 0 host blocks of 2 slots:",
        "    sequence 0: table block 0 [· ·]; knows 0, may read 0",
        "    sequence 1: none",
        "    block 0: used, refcount 1",
        "    GPU: 1 free, 1 used, 0 evictable, 0 reserved",
        "fork(parent 0, child 1)",
        "After (* marks what changed):",
        "    sequence 0: table block 0 [· ·]; knows 0, may read 0",
        "  * sequence 1: table block 0 [· ·]; knows 0, may read 0",
        "    block 0: used, refcount 1",
        "    GPU: 1 free, 1 used, 0 evictable, 0 reserved",
    ]


def test_a_missing_copy_on_write_is_shown() -> None:
    found = counterexample_of(changed(("append", GUARD_OF_SHARED, "pass")), "append", "sharers_agree_on_the_tokens")
    writer, block = found.arguments["seq"], found.arguments["block"]
    assert found.before.refcount[block] == 2
    assert found.before.table[0][0] == found.before.table[1][0] == block
    assert found.after.tokens[writer][0] != found.after.tokens[1 - writer][0]
    assert f"    block {block}: used, refcount 2" in lines(found)
    assert any(line.startswith(f"  * sequence {writer}: table block {block} [") for line in lines(found))


def test_a_copy_that_is_forgotten_is_shown() -> None:
    check = "check(same(state.memory[block], state.memory[old], BLOCK_SIZE), 'cow-copied')"
    text = changed(("append", "copy_block(state, old, block)", "pass"), ("append", check, "pass"))
    found = counterexample_of(text, "append", "what_is_done_is_written")
    assert found.clauses[0].values["num_done(state, s, i)"] == 1
    assert found.clauses[0].values["num_promised(state, state.table[s][i])"] == 0
    old, new = 1 - found.arguments["block"], found.arguments["block"]
    assert any(line.startswith(f"    block {old}: used, refcount 1, memory [") for line in lines(found))
    assert f"  * block {new}: used, refcount 1" in lines(found)


def test_the_eviction_of_a_referenced_block_is_shown() -> None:
    text = changed(("evict", "state.status[block] == EVICTABLE", "state.status[block] != FREE"))
    found = counterexample_of(text, "evict", "status_tells_who_refers")
    assert f"    block {found.arguments['block']}: used, refcount 1" in lines(found)
    assert f"  * block {found.arguments['block']}: free, refcount 1" in lines(found)
    check = "check state.refcount[block] == 0 and (not is_pending(state, block))"
    picture = lines(counterexample_of(text, "evict", check))
    assert picture[0] == "Only blocks that no sequence holds are evicted."
    assert "At the check (* marks what changed):" in picture


def test_an_append_that_is_off_by_one_is_shown() -> None:
    rest = "\n        state.num_blocks[seq] += 1"
    text = changed(("append", f"gain(state, seq, index, block){rest}", f"gain(state, seq, index + 1, block){rest}"))
    found = counterexample_of(text, "append", "tables_name_blocks")
    assert (found.before.num_blocks[0], found.after.num_blocks[0]) == (0, 1)
    clause = found.clauses[0]
    assert clause.text.endswith("state.position[s][state.table[s][i]] == i)")
    assert clause.values["state.position[s][state.table[s][i]]"] != clause.at["i"] == 0


def test_a_swap_that_frees_a_shared_source_is_shown() -> None:
    found = counterexample_of(
        changed(("lose", "state.refcount[block] == 0", "True")), "move_entry", "status_tells_who_refers"
    )
    assert found.sizes.num_host_blocks > 0
    picture, source = lines(found), found.clauses[0].at["b"]
    assert f"    block {source}: used, refcount 2" in picture
    assert f"  * block {source}: free, refcount 1" in picture
    assert f"move_entry(seq {found.arguments['seq']}, block {found.arguments['block']})" in picture
    as_data = data(found)
    assert as_data["before"].keys() == as_data["after"].keys() == FIELDS.keys()
    assert (as_data["before"]["refcount"][source], as_data["after"]["refcount"][source]) == (2, 1)


def test_a_subscript_out_of_range_is_shown() -> None:
    text = changed(("mark_computed", "state.computed[block] = True", "state.computed[block + 1] = True"))
    found = counterexample_of(text, "mark_computed", "state.computed[block + 1] has a Block in range")
    assert found.arguments == {"block": found.sizes.num_gpu_blocks - 1}


def test_a_first_state_made_wrong_is_shown() -> None:
    text = changed(("all_free", "pool_size(pool) if", "pool_size(pool) + 1 if"))
    initial = next(one for one in Induction(Translator(text=text)).initial() if one.claim == "counters_add_up")
    found = counterexample(initial, text)
    assert found is not None
    assert found.before.count[0][0] == found.sizes.num_gpu_blocks + 1


def test_a_theorem_that_does_not_follow_is_shown() -> None:
    text = changed(("two_holders_are_counted_twice", "state.refcount[b] > 1", "state.refcount[b] > 2"))
    claim = "two_holders_are_counted_twice"
    theorem = next(one for one in Induction(Translator(text=text)).theorems() if one.claim == claim)
    found = counterexample(theorem, text)
    assert found is not None
    assert max(found.before.refcount) == 2
    assert "The state, with 2 GPU and 0 host blocks of 2 slots:" in lines(found)


def test_an_invariant_that_reads_out_of_range_is_shown() -> None:
    text = changed(("pins_are_no_debt", "state.pins[b]", "state.pins[b + 1]"))
    claims = Induction(Translator(text=text)).claims_are_defined()
    found = counterexample(next(one for one in claims if one.subject == "pins_are_no_debt"), text)
    assert found is not None
    assert "  state.pins[b + 1] has a Block in range" in lines(found)
    assert not any(line.startswith("After") for line in lines(found))


def test_a_claim_of_which_a_part_cannot_be_read_is_shown_by_the_part_before() -> None:
    text = changed(("reserve", "state.num_blocks[seq] += 1", "state.num_blocks[seq] += 2"))
    found = counterexample_of(text, "reserve", "tables_name_blocks")
    at = found.clauses[0].at
    found.after.table[at["s"]][at["i"]] = -3
    clauses = false_clauses(text, found.sizes, "tables_name_blocks", found.after)
    assert [one.text for one in clauses if one.at == at] == ["implies(has_entry(state, s, i), 0 <= state.table[s][i])"]


def test_a_claim_that_holds_has_no_counterexample() -> None:
    assert (
        counterexample(obligation_of(specification(), "evict", "status_tells_who_refers"), allowance=Allowance(2))
        is None
    )


def test_nothing_is_shown_when_no_time_is_left() -> None:
    text = changed(("fork", "state.refcount[b] + 1 if", "state.refcount[b] if"))
    assert counterexample(obligation_of(text, "fork", "every_holder_is_counted"), text, Allowance(0)) is None


def test_a_candidate_counts_only_if_the_run_confirms_it() -> None:
    text = changed(("fork", "state.refcount[b] + 1 if", "state.refcount[b] if"))
    obligation = obligation_of(text, "fork", "every_holder_is_counted")
    case, sizes = case_of(obligation), INSTANCES[0]
    assert case is not None
    candidate = Search(sizes, text).candidate(case, RULES["fork"], obligation.id, Allowance(20))
    assert candidate is not None
    assert Replay(case, sizes, text).run(candidate) is not None
    assert Replay(case, sizes, specification()).run(candidate) is None, "the right rule keeps the invariant there"
    disabled = Candidate(candidate.state, {"parent": 1, "child": 0})
    assert Replay(case, sizes, text).run(disabled) is None, "a guard refuses"
    broken = copy.deepcopy(candidate.state)
    broken.refcount[0] += 1
    assert Replay(case, sizes, text).run(Candidate(broken, candidate.arguments)) is None, "no state of the invariants"


def test_a_negative_subscript_is_no_way_to_read_from_the_end() -> None:
    text = changed(("mark_computed", "state.computed[block] = True", "state.computed[block - NUM_BLOCKS] = True"))
    claim = "state.computed[block - NUM_BLOCKS] has a Block in range"
    assert counterexample_of(text, "mark_computed", claim).arguments.keys() == {"block"}


def test_a_state_that_is_read_from_a_model_satisfies_the_invariants_natively() -> None:
    search = Search(INSTANCES[2], specification())
    candidate = search.enabled(RULES["append"], FIRING_EFFORT)
    assert candidate is not None
    assert Machine(search.sizes).broken_claims(candidate.state) == []
