"""Weakenings and faults of the text that were written by hand, where one statement is not enough or a hint is needed.

Each names the functions that change, with what is replaced in the text of each. Three of them are texts that an earlier
translator called proved, although they are false.
"""

import ast
from collections.abc import Iterator

from kvproof.audit.mutation.weakenings import Weakening, source_of
from kvproof.models.translation.text import specification

HANDMADE = "by hand"

Change = tuple[str, str, str]  # function, what is replaced, and by what; the whole body if nothing is replaced

FAULTS: dict[str, tuple[Change, ...]] = {
    "lose retires always": (("lose", "if state.refcount[block] == 0:", "if state.refcount[block] >= 0:"),),
    "fork does not count": (("fork", "state.refcount[b] + 1 if", "state.refcount[b] if"),),
    "append in a shared block": (
        ("append", "state.refcount[block] == 1, 'a shared", "state.refcount[block] >= 1, 'a shared"),
    ),
    "hit of a block not computed": (("hit", "require(state.computed[block],", "require(state.cached[block],"),),
    "late write from slot 0": (
        ("write_late", "spliced(state.memory[block], written,", "spliced(state.memory[block], 0,"),
    ),
    "arrival leaves the filler": (("arrive", "state.filler[target] = NONE\n", "pass\n"),),
    "a transfer brings all slots": (
        ("send_entry", "state.brings[flight] = state.num_written[old]", "state.brings[flight] = BLOCK_SIZE"),
    ),
    "slide without looking": (("slide", "not can_still_be_read(state, seq, state.first[seq])", "True"),),
    "evict what is not free": (("evict", "state.status[block] == EVICTABLE", "state.status[block] != FREE"),),
    "drop_last of a running sequence": (("drop_last", "state.ending[seq] or num_known", "True or num_known"),),
    "hit ignores content": (
        ("hit", "state.cached[block] and same(state.content[block], row, BLOCK_SIZE)", "state.cached[block]"),
    ),
    "hit compares all but the last slot": (
        (
            "hit",
            "same(state.content[block], row, BLOCK_SIZE), 'the block",
            "same(state.content[block], row, BLOCK_SIZE - 1), 'the block",
        ),
    ),
    "compute without arrival": (
        ("compute", "require(has_arrived(state, seq),", "require(True or has_arrived(state, seq),"),
    ),
    "launch pins nothing": (("launch", "pin(state, flight, block)", "state.uses[flight] = block"),),
    "window off by one": (("first_read", "position + 1 - window", "position + 2 - window"),),
    "chunk off by one": (("first_read", "position - position % -window", "position + 1 - position % -window"),),
    "theorem: at rest, True": (("at_rest_every_block_is_unused", "", "return True"),),
    "theorem: positive free counter, True": (("positive_free_count_means_a_free_block", "", "return True"),),
    "theorem: at rest, a tautology": (
        ("at_rest_every_block_is_unused", "", "return state.count[0][0] == state.count[0][0]"),
    ),
    "theorem: positive free counter, a tautology": (
        ("positive_free_count_means_a_free_block", "", "return state.count[0][0] == state.count[0][0]"),
    ),
    "contract: freed is done, True": (("a_sequence_at_rest_can_be_freed", "", "return True"),),
    "contract: freed is done, a tautology": (
        ("a_sequence_at_rest_can_be_freed", "", "return not state.live[seq] or state.live[seq]"),
    ),
    "contract: free gives back, only one way": (
        (
            "free_gives_back_what_nobody_else_uses",
            "(state.status[b] != USED and start.status[b] == USED) == (",
            "implies(state.status[b] != USED and start.status[b] == USED, ",
        ),
    ),
    "contract: stuck, and can_choose says nothing": (
        (
            "one_is_dropped",
            "state.first[seq] < state.num_blocks[seq]",
            "state.first[seq] < state.num_blocks[seq] and state.table[seq][state.num_blocks[seq] - 1] == 0",
        ),
        ("freeing_can_continue", "", "return state.live[seq]"),
    ),
    "contract: free starts only for unshared": (
        (
            "end_precondition",
            "at_rest(start, seq)",
            "at_rest(start, seq) and start.num_blocks[seq] == start.first[seq]",
        ),
    ),
    "guard: one flight for a block": (
        (
            "launch",
            "require(state.filler[block] == NONE,",
            "require(state.pins[block] == 0 and state.filler[block] == NONE,",
        ),
    ),
    "guard: exchange never where behind": (("exchange", "not is_behind or state.window[seq] == 0", "not is_behind"),),
    "guard: fork only unshared parents": (
        ("fork", "require(not state.live[child],", "require(not state.live[child] and state.num_filled[parent] == 0,"),
    ),
    "guard: hit only evictable blocks": (
        (
            "hit",
            "require(state.computed[block],",
            "require(state.computed[block] and state.refcount[block] == 0,",
        ),
    ),
    "check dropped: cow-copied in append": (
        ("append", "check(same(state.memory[block], state.memory[old], BLOCK_SIZE), 'cow-copied')\n", "pass\n"),
    ),
    "check dropped: no-double-free in lose": (
        ("lose", "check(state.refcount[block] > 0, 'no-double-free')\n", "pass\n"),
    ),
    "write dropped: a copy without the KV": (
        ("copy_block", "state.memory[target] = copied(state.memory[source])\n", "pass\n"),
    ),
    "write dropped: num_written of the copy": (
        ("copy_block", "state.num_written[target] = state.num_written[source]", "pass"),
    ),
    "retire forgets computed content": (
        ("retire", "if state.computed[block]:", "if state.computed[block] and state.num_written[block] < 0:"),
    ),
    "mark_computed without content": (
        ("mark_computed", "state.num_written[block] == BLOCK_SIZE", "state.num_written[block] > 0"),
    ),
    "swap leaves the home pool": (("end_swap", "state.home[seq] = 1 - state.home[seq]\n", "pass\n"),),
    "admit forgets the window": (("admit", "state.window[seq] = window\n", "pass\n"),),
    "finish keeps its entries": (("finish", "state.num_blocks[seq] = 0\n", "pass\n"),),
    "set_aside a cached evictable block": (
        ("set_aside", "state.status[block] == FREE", "state.status[block] != USED"),
    ),
    "false text: a quantifier within a comprehension": (
        (
            "mark_computed",
            "state.computed[block] = True\n",
            "state.computed[block] = True\n    state.refcount = "
            "[state.refcount[x] + (1 if any(b != x for b in BLOCKS) else 0) for x in BLOCKS]\n",
        ),
    ),
    "false text: a rule that returns early": (
        (
            "finish",
            "state.live[seq] = False\n",
            "state.live[seq] = False\n    if state.num_full[seq] >= 0:\n        return 0\n",
        ),
    ),
    "false text: a theorem of two returns": (
        (
            "positive_free_count_means_a_free_block",
            "",
            "if state.count[0][0] > 1:\n        return False\n    return True",
        ),
    ),
}


def handmade() -> Iterator[Weakening]:
    """Every weakening and fault that was written by hand. Raises LookupError if the text has not what is replaced."""
    text = specification()
    for name, changes in FAULTS.items():
        sources = {function: _changed(text.functions[function][0], old, new) for function, old, new in changes}
        yield Weakening(HANDMADE, name, sources)


def _changed(function: ast.FunctionDef, old: str, new: str) -> str:
    source = source_of(function) + "\n"
    if not old:
        return f"{source.splitlines()[0]}\n    {new}\n"
    if old not in source:
        raise LookupError(f"{function.name} has no {old!r}")
    return source.replace(old, new)
