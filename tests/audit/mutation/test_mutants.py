"""The explorer finds the rules broken on purpose, by the shortest run there is."""

from functools import cache

import pytest

from kvproof.audit.faults.edits import Fault, NotPlanted
from kvproof.audit.mutation.mutants import mutated
from kvproof.audit.mutation.operators import changed, changed_statement, deletions
from kvproof.check.protocol.scopes import Scope, sizes_of
from kvproof.check.search.exhaustive.specification import explore_specification
from kvproof.check.search.exhaustive.specification_rules import RuleSpace
from kvproof.check.search.result import SearchResult

NO_LIMIT, TRANSITIONS_MAX = 1e9, 800_000  # transitions and not seconds end a search, so that machines agree
TABLES = Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=3, level="rules")
WINDOW = Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=4, window=2, fork=False, level="rules")
WINDOW_AND_CACHE = Scope(2, 0, 1, 2, 1, caching=True, window=2, fork=False, level="rules")
SWAP = Scope(num_gpu_blocks=2, num_host_blocks=2, num_seqs=2, num_tokens=1, block_size=1, swap=True, level="rules")
CACHE = Scope(num_gpu_blocks=2, num_seqs=2, num_tokens=1, block_size=1, caching=True, level="rules")

FLIGHTS = Scope(num_gpu_blocks=2, num_seqs=1, num_tokens=1, block_size=1, fork=False, num_flights=2, level="rules")
TRANSFERS = Scope(
    num_gpu_blocks=1, num_host_blocks=2, num_seqs=1, num_tokens=1, block_size=1, swap=True, num_flights=1, level="rules"
)
THERE_AND_BACK = Scope(2, 1, 1, 1, 1, swap=True, num_flights=2, fork=False, level="rules")
TAILS_IN_TRANSFER = Scope(num_gpu_blocks=1, num_host_blocks=2, num_tokens=2, swap=True, num_flights=1, level="rules")


def explored(mutant: Fault, scope: Scope) -> SearchResult:
    space = RuleSpace(scope, mutated(mutant, sizes_of(scope)))
    return explore_specification(scope, seconds=NO_LIMIT, max_transitions=TRANSITIONS_MAX, space=space)


@cache
def all_deletions() -> list[Fault]:
    return [*deletions()]


def deletion(function: str, beginning: str) -> Fault:
    (found,) = [m for m in all_deletions() if m.row == function and m.plant[0].old.startswith(beginning)]
    return found


# For each mutant: where it is explored, the property that breaks, and the rules of the shortest run to it.
CASES = [
    (
        "a fork does not count the new references",
        deletion("fork", "state.refcount = "),
        TABLES,
        "refcount-exact",
        ["admit", "append", "fork"],
    ),
    (
        "a shared tail is written where it stands",
        deletion("append", "require(state.refcount[block] == 1"),
        TABLES,
        "exclusive-writer",
        ["admit", "append", "fork", "append"],
    ),
    (
        "a tail is replaced by a block without its content",
        deletion("append", "copy_block"),
        TABLES,
        "cow-copied",
        ["admit", "append", "compute", "append"],
    ),
    (
        "an append counts one entry too many",
        changed_statement("append", "state.num_blocks[seq] += 1", "state.num_blocks[seq] += 2"),
        TABLES,
        "sharing-equal",
        ["admit", "append"],
    ),
    (
        "a drop keeps the reference counted",
        deletion("lose", "state.refcount[block] -= 1"),
        TABLES,
        "admission-sound",
        ["admit", "append", "append"],
    ),
    (
        "a drop gives back a block that another sequence holds",
        changed_statement(
            "lose",
            "if state.refcount[block] == 0:\n    retire(state, block)",
            "if state.refcount[block] <= 1:\n    retire(state, block)",
        ),
        TABLES,
        "admission-sound",
        ["admit", "append", "fork", "append"],
    ),
    (
        "an eviction does no bookkeeping",
        deletion("evict", "forget"),
        CACHE,
        "lists-agree",
        ["admit", "append", "begin_free", "compute", "promote", "mark_computed", "drop_last", "evict"],
    ),
    (
        "a used block is evicted",
        deletion("evict", "require"),
        CACHE,
        "evict-unreferenced",
        ["admit", "append", "evict"],
    ),
    (
        "a block is hit before it is computed",
        deletion("hit", "require(state.computed[block]"),
        CACHE,
        "read-back",
        ["admit", "append", "promote", "admit", "hit"],
    ),
    (
        "a swap takes the shared source from its other holder",
        changed_statement("move_entry", "lose(state, seq, old)", "lose(state, seq, old)\nforget(state, old)"),
        SWAP,
        "lists-agree",
        ["admit", "append", "fork", "begin_swap", "move_entry"],
    ),
    (
        "a swap does not copy",
        deletion("move_entry", "copy_block"),
        SWAP,
        "read-back",
        ["admit", "append", "compute", "begin_swap", "move_entry"],
    ),
    (
        "the window leaves what is still read",
        deletion("slide", "require(not can_still_be_read"),
        WINDOW,
        "read-back",
        ["admit", "append", "slide"],
    ),
    (
        "what the next token reads is skipped",
        deletion("widen", "require(all("),
        WINDOW_AND_CACHE,
        "window-kept",
        ["admit", "skip", "widen"],
    ),
    (
        "a sequence with a window skips what its next token reads",
        deletion("skip", "require(state.window[seq] == 1"),
        WINDOW_AND_CACHE,
        "window-kept",
        ["admit", "skip"],
    ),
    (
        "an entry is skipped after one that is held",
        deletion("skip", "require(state.first[seq] == index"),
        WINDOW_AND_CACHE,
        "window-kept",
        ["admit", "append", "skip"],
    ),
    (
        "a block is given back while a step uses it",
        changed_statement(
            "retire",
            "if state.pins[block] == 0 and state.filler[block] == NONE:\n"
            "    if state.computed[block]:\n"
            "        move_to(state, block, EVICTABLE)\n"
            "    else:\n"
            "        forget(state, block)",
            "forget(state, block)",
        ),
        FLIGHTS,
        "in-flight-held",
        ["admit", "append", "begin_free", "launch", "drop_last"],
    ),
    (
        "the landing of one step gives back what another still uses",
        changed_statement("unpin", "state.pins[block] -= 1", "state.pins[block] = 0"),
        FLIGHTS,
        "in-flight-held",
        ["admit", "append", "launch", "launch", "land"],
    ),
    (
        "a transfer does not hold the block that it reads",
        changed_statement("send_entry", "pin(state, flight, old)", "state.uses[flight] = old"),
        TRANSFERS,
        "in-flight-held",
        ["admit", "append", "begin_swap", "send_entry"],
    ),
    (
        "what has not arrived is read",
        deletion("compute", "require(has_arrived"),
        TRANSFERS,
        "in-flight-held",
        ["admit", "append", "begin_swap", "send_entry", "compute"],
    ),
    (
        "what has not arrived is copied",
        deletion("append", "require(state.filler[old] == NONE"),
        TAILS_IN_TRANSFER,
        "in-flight-held",
        ["admit", "append", "begin_swap", "send_entry", "end_swap", "append"],
    ),
    (
        "a transfer brings nothing",
        deletion("arrive", "state.memory[target]"),
        TRANSFERS,
        "swap-mapping",
        ["admit", "append", "compute", "begin_swap", "send_entry", "arrive"],
    ),
]


@pytest.mark.parametrize(("mutant", "scope", "property", "rules"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_broken_rule_is_found_by_the_shortest_run(
    mutant: Fault, scope: Scope, property: str, rules: list[str]
) -> None:
    found = explored(mutant, scope)
    assert found.counterexample is not None
    assert not found.is_exhausted
    assert found.counterexample.finding.property == property
    assert [operation[0] for operation in found.counterexample.operations] == rules


@pytest.mark.parametrize("scope", [TABLES, WINDOW, WINDOW_AND_CACHE, SWAP, CACHE, FLIGHTS, TRANSFERS])
def test_the_rules_as_they_are_pass_where_the_mutants_fail(scope: Scope) -> None:
    found = explore_specification(scope, seconds=60)
    assert (found.counterexample, found.is_exhausted) == (None, True)


def test_every_statement_that_does_something_is_deleted_once() -> None:
    mutants = all_deletions()
    assert len(mutants) == len(set(mutants)) > 150
    assert all(changed(mutant) for mutant in mutants)


def test_a_mutant_that_changes_no_statement_is_an_error() -> None:
    with pytest.raises(NotPlanted, match="fork has no such statement"):
        changed(changed_statement("fork", "state.nothing = 0"))


# Deleting these changes nothing that a claim could be about: a guard that the others imply, a guard without which the
# rule is still safe, or a write of what is there already.
REDUNDANT = {
    ("admit", "require(window >= 0"),  # no count is negative
    ("admit", "state.moving[seq] = NONE"),  # as `finish` left it
    ("catch_up", "require(state.live[seq]"),  # where there is no slot no token is known
    ("catch_up", "require(state.done_filled[seq] < stop"),  # what is written is known; less may always be done
    ("compute", "require(state.live[seq]"),  # where there is no slot no token is known
    ("finish", "require(state.live[seq]"),  # a sequence without entries may end
    ("finish", "state.num_filled[seq] = 0"),  # nothing is filled without an entry
    ("finish", "state.done_filled[seq] = 0"),
    ("follow_entry", "require(state.live[seq]"),  # at rest the next entry is NONE, and no leader has it
    ("fork", "state.ending[child] = False"),  # as `finish` left it
    ("fork", "state.moving[child] = NONE"),
    ("promote", "require(not state.cached[block]"),  # its holders have the content already
    ("slide", "require(state.first[seq] < state.num_full[seq]"),  # what is not full is not done, so it is still read
    ("widen", "require(at_rest"),  # nothing is read while a sequence is swapped or freed
    ("widen", "require(state.window[seq] == 1"),  # whatever it was, nothing that was left is read afterwards
}

# Only a proof needs these: it begins in any state that the invariants allow, and a run does not come to each of them.
SEEN_BY_PROOFS_ALONE = {
    ("unpin", "state.pinner[block][state.pin_rank[flight]] = last"),  # a ghost; what follows looks like a state before
    ("follow_entry", "require(not holds(state, seq, twin)"),  # who shares a block has it at the same place
    ("hit", "require(not holds(state, seq, block)"),  # in a run no two entries of a sequence have one content
    ("rehit_entry", "require(not holds(state, seq, twin)"),
    ("share", "require(not holds(state, seq, block)"),
}


@pytest.mark.long
@pytest.mark.parametrize("rule", sorted({mutant.row for mutant in all_deletions()}))
def test_every_deletion_but_the_redundant_statements_is_found(rule: str) -> None:
    scopes = [
        TABLES,
        Scope(2, 0, 2, 2, 1, window=1, level="rules"),
        Scope(2, 0, 2, 1, 1, lookahead=1, level="rules"),
        WINDOW,
        CACHE,
        SWAP,
        Scope(2, 2, 2, 1, 1, lookahead=1, swap=True, level="rules"),
        Scope(2, 2, 1, 2, 1, window=1, fork=False, swap=True, level="rules"),
        Scope(2, 1, 2, 1, 1, caching=True, fork=False, swap=True, level="rules"),
        Scope(2, 0, 2, 2, 2, caching=True, reserving=True, level="rules"),
        Scope(2, 0, 1, 3, 1, caching=True, window=1, fork=False, level="rules"),
        WINDOW_AND_CACHE,
        Scope(2, 2, 2, 2, 2, swap=True, level="rules"),
        FLIGHTS,
        TRANSFERS,
        THERE_AND_BACK,
        Scope(2, 0, 1, 1, 1, caching=True, fork=False, num_flights=2, level="rules"),
        Scope(3, 0, 2, 2, 1, caching=True, window=2, fork=False, level="rules"),  # the large ones come last
        TAILS_IN_TRANSFER,
    ]
    missed = [
        mutant
        for mutant in all_deletions()
        if mutant.row == rule
        and not any(
            mutant.row == function and mutant.plant[0].old.startswith(text)
            for function, text in REDUNDANT | SEEN_BY_PROOFS_ALONE
        )
        and not any(explored(mutant, scope).finding for scope in scopes)
    ]
    assert missed == []
