"""The rules use names as names only, and a text that takes one for something else is told where."""

from __future__ import annotations

import ast

import pytest

from kvproof.spec.names_only import mixed_names
from kvproof.spec.syntax_trees import Functions, functions

ANOTHER_KIND = {
    "a sequence selects a cell of a block": (
        ("lose", "state.position[seq][block] = NONE", "state.position[seq][seq] = NONE"),
        "lose (steps.py:60) takes a sequence for a block",
    ),
    "a sequence is stored where blocks are": (
        ("gain", "state.table[seq][index] = block", "state.table[seq][index] = seq"),
        "gain (steps.py:48) takes a sequence for a block",
    ),
    "a sequence is passed on as a flight": (
        ("launch", "pin(state, flight, block)", "pin(state, seq, block)"),
        "launch (flight_rules.py:62) takes a sequence for a flight",
    ),
    "a local is a block here and a sequence there": (
        ("unpin", "state.uses[flight] = NONE", "state.live[block] = False"),
        "unpin (flight_rules.py:45) takes a block for a sequence",
    ),
}
A_NUMBER = {
    "the next block is named": ("pin", "state.uses[flight] = block", "state.uses[flight] = block + 1"),
    "block 0 is preferred": ("evict", "state.refcount[block] == 0", "block == 0"),
    "block 0 is left out": ("hit", "0 <= block", "0 < block"),
    "block 0 is left out, the other way round": ("hit", "0 <= block", "block > 0"),
    "the last block of a pool is preferred": ("hit", "block < NUM_BLOCKS", "block <= NUM_BLOCKS"),
    "flights are ordered": ("is_idle", "state.uses[flight] == NONE", "all(f < flight for f in FLIGHTS)"),
    "a count is compared with a block": ("evict", "state.refcount[block] == 0", "state.refcount[block] == block"),
    "a side of a comparison is not looked at": ("hit", "block < NUM_BLOCKS", "state.refcount[seq] < NUM_BLOCKS"),
    "a sequence is compared with the size of a pool": ("at_rest", "state.live[seq]", "seq < NUM_GPU_BLOCKS"),
    "a truth value is a name": ("gain", "state.table[seq][index] = block", "state.table[seq][index] = True"),
    "the last cell is taken": ("evict", "state.refcount[block] == 0", "state.refcount[NONE] == 0"),
    "a local is a sequence in one branch and a block in the other": (
        "lose",
        "state.position[seq][block] = NONE",
        "other = seq if False else seq\n    if state.live[seq]:\n        other = block\n    state.pins[other] = 0",
    ),
    "a sequence is put where a block is": ("fork", "put(", "put(state.position[child], child, 0) if False else put("),
    "an argument has a keyword": ("launch", "pin(state, flight, block)", "pin(state, flight, block=seq)"),
    "a function is called that is not known": ("holds", "state.position[seq][block]", "len(state.position[seq])"),
}
AS_NAMES = {
    "nothing is kept": ("lose", "state.position[seq][block] = NONE", "pass"),
    "two sequences are exchanged": ("follow_entry", "lose(state, seq, old)", "lose(state, leader, old)"),
    "a guard is turned round": ("is_idle", "state.uses[flight] == NONE", "state.uses[flight] != NONE"),
    "a pool is asked for from the other side": ("hit", "block < NUM_BLOCKS", "NUM_BLOCKS > block"),
}


def edited(name: str, old: str, new: str) -> Functions:
    tree, file = functions()[name]
    source = ast.unparse(tree)
    assert source.count(old) >= 1
    (changed,) = ast.parse(source.replace(old, new, 1)).body
    assert isinstance(changed, ast.FunctionDef)
    return {**functions(), name: (ast.increment_lineno(changed, tree.lineno - changed.lineno), file)}


def test_no_rule_and_no_claim_prefers_a_name() -> None:
    assert mixed_names() == mixed_names(functions()) == ""


@pytest.mark.parametrize("what", ANOTHER_KIND)
def test_a_name_of_one_kind_is_not_one_of_another(what: str) -> None:
    edit, sentence = ANOTHER_KIND[what]
    assert mixed_names(edited(*edit)).partition(":")[0] == sentence.partition(":")[0]
    assert mixed_names(edited(*edit)).partition(") ")[2] == sentence.partition(") ")[2]


@pytest.mark.parametrize("what", A_NUMBER)
def test_a_name_is_no_number(what: str) -> None:
    name, *_ = A_NUMBER[what]
    assert mixed_names(edited(*A_NUMBER[what])).startswith(f"{name} (")


@pytest.mark.parametrize("what", AS_NAMES)
def test_what_uses_names_as_names_is_not_reported(what: str) -> None:
    assert mixed_names(edited(*AS_NAMES[what])) == ""
