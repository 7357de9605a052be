"""Wrong texts whose wrong states once hid behind right ones, or were never asked: each is refuted in both readers.

And a text that reads what the keys of states leave out is not exhausted, nor is one that prefers a name.
"""

import math
import shutil
from typing import NamedTuple

import pytest
from tests.check.hunting.test_partitioned_search import Here

from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import text_with
from kvproof.check.hunting.partitioned_search import PartitionedReader
from kvproof.check.protocol.scopes import Scope
from kvproof.check.search.exhaustive import part
from kvproof.check.search.exhaustive.c_reader import exploration
from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, UnfitForC, translation_of
from kvproof.check.search.exhaustive.left_out import PREFERS_A_NAME, READS_LEFT_OUT
from kvproof.check.search.exhaustive.specification import explore_specification, space_of
from kvproof.check.search.result import SearchResult
from kvproof.models.translation.text import specification
from kvproof.spec.c_reader import library
from kvproof.spec.syntax_trees import Functions, functions


class Wrong(NamedTuple):
    """Edits of functions, each with the old and the new statement; a scope, and the property that is refuted there."""

    edits: tuple[tuple[str, str, str], ...]
    scope: Scope
    property: str


TABLES = Scope(2, 0, 2, 2, 1, level="rules")
ONE_BLOCK = Scope(1, num_seqs=1, num_tokens=2, caching=True, fork=False, level="rules")
STEPS = Scope(2, 0, 1, 1, 1, fork=False, num_flights=1, level="rules")
TRANSFERS = Scope(2, 1, num_seqs=1, num_tokens=1, block_size=1, swap=True, num_flights=1, level="rules")
ONLY_IF_UNHELD = "if state.refcount[block] == 0:\n        state.pins[block] -= 1"
COUNTED = (
    "state.ending[seq] = True\n    if state.num_blocks[seq] == 1:\n        state.refcount[state.table[seq][0]] += 1"
)
NOTHING_IS_HELD = "state.uses[flight] == NONE and state.refcount[state.uses[flight]] == 0"
UNCOUNTED = "if state.ending[seq]:\n        state.refcount[block] -= 1\n    state.num_blocks[seq] = index"
WRONG = {
    "a block that is forgotten stays computed": Wrong(
        (("forget", "state.computed[block] = False", "pass"),), ONE_BLOCK, "lists-agree"
    ),
    "a block that is forgotten stays written": Wrong(
        (("forget", "state.num_written[block] = 0", "pass"),), ONE_BLOCK, "cache-content"
    ),
    "the pin of a step stays while a table names the block": Wrong(
        (("unpin", "state.pins[block] -= 1", ONLY_IF_UNHELD),), STEPS, "in-flight-held"
    ),
    "the pin of a transfer stays while a table names the block": Wrong(
        (("unpin", "state.pins[block] -= 1", ONLY_IF_UNHELD),), TRANSFERS, "in-flight-held"
    ),
    "a sequence that has ended is still being moved": Wrong(
        (("finish", "state.first[seq] = 0", "state.first[seq] = 0\n    state.moving[seq] = 3"),), TABLES, "swap-mapping"
    ),
    "the last holder keeps its old rank": Wrong(
        (("lose", "state.rank[block][last] = state.rank[block][seq]", "pass"),), TABLES, "refcount-exact"
    ),
    "a block keeps its place in a list": Wrong(
        (("move_to", "state.place[last] = state.place[block]", "pass"),), TABLES, "lists-agree"
    ),
    "a reference is counted twice while its sequence is freed": Wrong(
        (
            ("begin_free", "state.ending[seq] = True", COUNTED),
            ("drop_last", "state.num_blocks[seq] = index", UNCOUNTED),
        ),
        TABLES,
        "refcount-exact",
    ),
    # Python counts from the end, so this flight may begin only while nobody holds the last block.
    "no block selects the cell of the last one": Wrong(
        (("is_idle", "state.uses[flight] == NONE", NOTHING_IS_HELD),), STEPS, "total-calls"
    ),
}
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def text_of(edits: tuple[tuple[str, str, str], ...]) -> Functions:
    text = specification()
    for function, old, new in edits:
        text = text_with(text, Edit(function, old, new))
    return {name: text.functions[name] for name in functions()}


def in_c(scope: Scope, text: Functions, monkeypatch: pytest.MonkeyPatch) -> SearchResult:
    monkeypatch.setattr(library, "FLAGS", tuple("-O0" if flag == "-O3" else flag for flag in library.FLAGS))
    monkeypatch.setattr(exploration, "NUM_COMPARED", 0)
    spec = SpecificationInC(scope, library.load(translation_of(text)[1]), text)
    return exploration.explore_in_c(scope, seconds=math.inf, spec=spec)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_text_is_refuted_in_python(name: str) -> None:
    wrong = WRONG[name]
    space = space_of(wrong.scope, text=text_of(wrong.edits))
    found = explore_specification(wrong.scope, seconds=math.inf, space=space)
    assert found.finding is not None
    assert found.finding.property == wrong.property


@NEEDS_COMPILER
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_text_is_refuted_in_c(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = WRONG[name]
    found = in_c(wrong.scope, text_of(wrong.edits), monkeypatch)
    assert found.finding is not None
    assert found.finding.property == wrong.property


NO_HOME = text_of((("admit", "state.home[seq] = GPU", "pass"),))


def is_open(found: SearchResult) -> bool:
    return not found.is_exhausted and found.finding is None and READS_LEFT_OUT.partition("{}")[2] in found.text


def test_a_text_that_reads_what_keys_leave_out_is_not_exhausted() -> None:
    assert is_open(explore_specification(TABLES, seconds=math.inf, space=space_of(TABLES, text=NO_HOME)))
    calls = Scope(2, num_seqs=2, num_tokens=2)
    assert is_open(explore_specification(calls, seconds=math.inf, space=space_of(calls, text=NO_HOME)))


def test_a_text_that_reads_what_keys_leave_out_is_not_exhausted_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "space_of", lambda scope, names: space_of(scope, names, NO_HOME))
    assert is_open(PartitionedReader(Here(2), 100_000)(TABLES, seconds=600))


@NEEDS_COMPILER
def test_a_text_that_reads_what_strings_leave_out_is_not_exhausted_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_open(in_c(TABLES, NO_HOME, monkeypatch))


PREFERS = text_of((("lose", "state.position[seq][block] = NONE", "state.position[seq][seq] = NONE"),))
NONE_TO_LOSE = Scope(2, 0, 1, 1, 1, fork=False, num_flights=2, level="rules")  # here it was exhausted in C


def says_that_names_matter(found: SearchResult) -> bool:
    return (
        not found.is_exhausted and PREFERS_A_NAME.partition("{}")[2] in found.text and found.text.startswith("lose (")
    )


def test_a_text_that_prefers_a_name_is_refuted_or_not_exhausted() -> None:
    found = explore_specification(NONE_TO_LOSE, seconds=math.inf, space=space_of(NONE_TO_LOSE, text=PREFERS))
    assert found.finding is not None or says_that_names_matter(found)


@NEEDS_COMPILER
def test_a_text_that_prefers_a_name_is_not_searched_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnfitForC, match=r"lose \(.*\) takes a sequence for a block; leave out --reader c"):
        in_c(NONE_TO_LOSE, PREFERS, monkeypatch)
