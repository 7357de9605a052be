"""A prompt hits the blocks that its window reads; earlier blocks may be evicted."""

import pytest

from kvproof.spec.compilation import Guard
from kvproof.spec.language import COLLECTED
from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.text.operations import (
    Program,
    admit_past_window_hit,
    admit_sequence,
    compute_tokens,
    free_sequence,
    mark_computed,
)
from kvproof.spec.text.state import State

SIZE = 2
PROMPT = [1, 2, 3, 4, 5, 6, 7]
MACHINE = Machine(Sizes(5, 0, SIZE, 2, 4))
NULL = MACHINE.null


def run(state: State, program: Program) -> Guard | None:
    """Fire a program to its end, or to the guard that refuses."""
    for rule, arguments in program:
        refused = MACHINE.rules[rule](state, *arguments)
        if refused is not None:
            return refused
    return None


def cached(window: int, evicted: tuple[int, ...]) -> State:
    """The first three entries of the prompt were computed in blocks 0 to 2, given back, and in part evicted."""
    state = MACHINE.first_state()
    for program in (
        admit_sequence(state, SIZE, 0, window, PROMPT, 0, 4, lambda index: index, True),
        compute_tokens(state, SIZE, 0, len(PROMPT)),
        mark_computed(state, SIZE, 0, 0),
        free_sequence(state, 0),
        (("evict", (block,)) for block in evicted),
    ):
        assert run(state, program) is None
    return state


def admitted(state: State, window: int, first: int, num_hit: int) -> Guard | None:
    """Admit the same prompt again, with new blocks 4, 3, … for the entries that are no hits."""
    named = [*range(num_hit), 4, 3][:4].__getitem__
    return run(state, admit_past_window_hit(state, SIZE, 1, window, PROMPT, first, num_hit, 4, named, True))


@pytest.mark.parametrize(
    ("window", "first", "num_hit"),
    # The token at position 2 x num_hit reads the positions above 2 x num_hit - window.
    [(1, 3, 3), (2, 2, 3), (3, 2, 3), (4, 1, 3), (5, 1, 3), (3, 1, 2), (6, 0, 3), (0, 0, 3)],
)
def test_a_hit_needs_no_block_that_the_next_token_does_not_read(window: int, first: int, num_hit: int) -> None:
    state = cached(window, tuple(range(first)))
    assert admitted(state, window, first, num_hit) is None
    assert state.table[1][: num_hit + 1] == [*[NULL] * first, *range(first, num_hit), 4]
    assert (state.first[1], state.done_full[1], state.num_full[1], state.window[1]) == (first, num_hit, 3, window)
    assert run(state, compute_tokens(state, SIZE, 1, len(PROMPT) - num_hit * SIZE)) is None
    assert [c.name for c in COLLECTED.invariants + COLLECTED.theorems if not MACHINE.function(c.name)(state)] == []


@pytest.mark.parametrize(("window", "first", "num_hit"), [(2, 3, 3), (4, 2, 3), (6, 1, 3), (4, 1, 2), (0, 1, 3)])
def test_an_entry_that_the_next_token_reads_is_not_skipped(window: int, first: int, num_hit: int) -> None:
    refused = admitted(cached(window, tuple(range(first))), window, first, num_hit)
    assert refused is not None
    assert (refused.sentence, refused.property) == ("no later token reads an entry that was left", "window-kept")


def test_what_was_forgotten_is_not_hit_within_the_window() -> None:
    refused = admitted(cached(4, (0, 1)), 4, 1, 3)
    assert refused is not None
    assert (refused.sentence, refused.property) == ("the block hit was computed", "hit-computed")


def test_a_hit_that_skips_nothing_is_a_hit() -> None:
    past, plain = cached(3, ()), cached(3, ())
    assert admitted(past, 3, 0, 2) is None
    assert run(plain, admit_sequence(plain, SIZE, 1, 3, PROMPT, 2, 4, [0, 1, 4, 3].__getitem__, True)) is None
    assert vars(past) == vars(plain)
