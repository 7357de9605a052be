"""Each lint is silent on the specification as it is, and names the line of what breaks it."""

import ast
import textwrap
from dataclasses import replace

import pytest

from kvproof.models.proofs.lints import lint, lint_names, lints
from kvproof.models.translation.text import Text, place_of, specification
from kvproof.spec.language import COLLECTED


def with_functions(source: str) -> Text:
    text = specification()
    for function in ast.parse(textwrap.dedent(source)).body:
        assert isinstance(function, ast.FunctionDef)
        text = text.replaced(function.name, function)
    return text


def found(text: Text, name: str) -> list[str]:
    return [finding.text for finding in lint(name, text)]


def test_the_specification_breaks_no_lint() -> None:
    assert dict(lints()) == {name: [] for name in lint_names()}


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("guards-first", "state.live[seq] = False\nrequire(seq == 0, 'x')", "a guard after a write"),
        ("guards-first", "if seq == 0:\n    forget(state, 0)\nrequire(seq == 0, 'x')", "a guard after a write"),
        ("guards-first", "check(seq == 0, 'x')\nrequire(seq == 0, 'x')", "a guard after a write"),
        ("no-ghost-needed", "state.live[seq] = state.rank[0][seq] == 0", "live is written depending on a ghost"),
        ("no-ghost-needed", "state.refcount[state.holder[0][0]] = 0", "refcount is written depending on a ghost"),
        ("no-ghost-needed", "n = state.place[0]\nm = n + 1\nstate.refcount[0] = m", "refcount is written depending"),
        ("no-ghost-needed", "if state.place[0] == 0:\n    state.live[seq] = False", "live is written depending"),
        ("no-ghost-needed", "n = 0\nif state.place[0] == 0:\n    n = 1\nstate.refcount[0] = n", "refcount is written"),
        ("no-ghost-needed", "require(state.place[0] == 0, 'x')", "a guard depends on a ghost field"),
        ("no-ghost-needed", "forget(state, state.member[0][0][0])", "cached is written depending on a ghost"),
        (
            "no-ghost-needed",
            "x = 1\nif seq == 0:\n    x = state.place[0]\nstate.place[0] = x\nx = 2\nstate.refcount[0] = x",
            "place is read where a native run without ghosts needs it: state.place",
        ),
        ("no-aliasing", "state.table[seq] = state.table[0]", "state.table[0] would have two names"),
        ("no-aliasing", "row = state.table[0]", "state.table[0] would have two names"),
        ("no-aliasing", "state.table = [state.table[0] for s in SEQS]", "state.table[0] would have two names"),
        ("no-recursion", "state.live[seq] = False\nfinish(state, seq)", "calls in a circle"),
        ("no-aliasing", "know(state, seq, 0, state.table[0], 1)", "state.table[0] would have two names"),
        ("no-aliasing", "x = [0 for b in BLOCKS]\nstate.pins = x\nstate.pins[0] = 1", "x would have two names"),
        ("one-return", "if seq == 0:\n    return 0\nstate.live[seq] = False", "finish returns; write its statements"),
        (
            "stated-bounds",
            "require(all(state.table[seq][i] != 0 for i in INDEXES), 'x')",
            "all over INDEXES ends natively",
        ),
        (
            "stated-bounds",
            "if any(state.table[seq][i] == 0 for i in INDEXES):\n    state.live[seq] = False",
            "any over",
        ),
        ("stated-bounds", "x = all(implies(i < 3, state.table[seq][i] == 0) for i in INDEXES)", "all over INDEXES"),
        ("stated-bounds", "x = all(implies(i <= state.first[seq], seq == i) for i in INDEXES)", "bound i by a length"),
        ("stated-bounds", "x = all(implies(k < state.first[seq], seq == k) for k in RANKS)", "(count, pins, refcount)"),
        ("stated-bounds", "x = all(implies(i < state.first[seq] or seq == 0, seq == i) for i in INDEXES)", "all over"),
        ("stated-bounds", "x = all(i < state.first[seq] and seq == i for i in INDEXES)", "all over INDEXES"),
        ("stated-bounds", "x = any(implies(i < state.first[seq], seq == i) for i in INDEXES)", "any over INDEXES"),
        ("stated-bounds", "x = any(i < state.first[i] for i in INDEXES for i in SEQS)", "any over INDEXES"),
        ("stated-bounds", "state.first[seq] = 1 if any(k == seq for k in STEPS) else 0", "(there is none)"),
        ("stated-bounds", "check(any(state.table[seq][i] == 0 for i in INDEXES), 'x')", "any over INDEXES"),
        ("stated-bounds", "check(not all(state.table[seq][i] == 0 for i in INDEXES), 'x')", "all over INDEXES"),
        ("stated-bounds", "check(implies(all(seq == i for i in INDEXES), seq == 0), 'x')", "all over INDEXES"),
        ("stated-bounds", "check(all(seq == i for i in INDEXES) == (seq == 0), 'x')", "all over INDEXES"),
        ("known-properties", "check(seq == 0, 'frame-keep')", "check names the property 'frame-keep', which does not"),
        (
            "known-properties",
            "require(seq == 0, 'x', 'no-such-property')",
            "kvproof/spec/text/properties.py lists all properties",
        ),
        ("known-properties", "if seq == 0:\n    check(seq == 0, 'frame_kept')", "did you mean 'frame-kept'?"),
    ],
)
def test_a_lint_names_what_breaks_it(name: str, body: str, text: str) -> None:
    findings = found(with_functions("def finish(state: State, seq):\n" + textwrap.indent(body, "    ")), name)
    assert [one for one in findings if text in one] != []


@pytest.mark.parametrize(
    "body",
    [
        "n = state.place[0]\nstate.place[0] = n + 1",
        "check(state.place[0] == 0, 'lists-agree')",
        "state.table[seq] = copied(state.table[0])",
        "state.memory[0] = state.memory[1]",
        "state.table = [state.table[s] for s in SEQS]",
        "require(seq == 0, 'x')\nif seq == 0:\n    require(state.live[seq], 'y')\nstate.live[seq] = False",
        "require(all(implies(has_entry(state, seq, i), state.table[seq][i] != 0) for i in INDEXES), 'x')",
        "require(all(implies(0 <= i < state.first[seq], seq == 0) and seq == 1 for i in SEQS), 'x')",
        "require(all(implies(0 <= i < state.first[seq] and seq == 0, seq == 1) for i in INDEXES), 'x')",
        "require(any(state.refcount[b] > k and k == seq for b in BLOCKS for k in RANKS), 'x')",
        "check(seq == 0 or all(state.table[seq][i] == 0 for i in INDEXES), 'read-back')",
    ],
)
def test_a_lint_is_silent_where_nothing_is_wrong(body: str) -> None:
    changed = with_functions("def finish(state: State, seq):\n" + textwrap.indent(body, "    "))
    assert {name: found(changed, name) for name in lint_names()} == {name: [] for name in lint_names()}


def test_a_quantifier_without_end_is_found_in_a_function_that_decides_and_not_in_a_claim() -> None:
    decides = "def holds(state: State, seq, block):\n    return all(state.table[seq][i] == block for i in INDEXES)"
    claims = "def counters_add_up(state: State):\n    return all(state.table[0][i] == 0 for i in INDEXES)"
    denies = "def counters_add_up(state: State):\n    return not all(state.table[0][i] == 0 for i in INDEXES)"
    judges = "def num_steps_max(state: State):\n    return all(state.table[0][i] == 0 for i in INDEXES)"
    texts = (decides, judges, claims, denies)
    assert [len(found(with_functions(text), "stated-bounds")) for text in texts] == [1, 1, 0, 1]


def test_a_bound_by_functions_that_call_each_other_is_none() -> None:
    text = with_functions(
        "def has_entry(state: State, seq, index):\n    return can_still_be_read(state, seq, index)\n"
        "def can_still_be_read(state: State, seq, index):\n    return has_entry(state, seq, index)\n"
        "def finish(state: State, seq):\n    x = any(has_entry(state, seq, i) for i in INDEXES)"
    )
    assert len(found(text, "stated-bounds")) == 1


def test_a_ghost_that_a_step_is_given_only_for_a_ghost_is_found() -> None:
    text = with_functions(
        "def forget(state, block):\n    state.place[0] = block\n"
        "def finish(state, seq):\n    forget(state, state.place[0])"
    )
    (one,) = found(text, "no-ghost-needed")
    assert one.startswith("place is read where a native run without ghosts needs it")


@pytest.mark.parametrize("call", ["*[seq]", "block=seq", "", "seq, seq"])
def test_a_call_of_a_step_that_is_not_in_the_language_is_left_to_the_translator(call: str) -> None:
    """The translator refuses it with file and line; the lint goes on, and still finds a ghost in it."""
    assert found(with_functions(f"def finish(state, seq):\n    forget(state, {call})"), "no-ghost-needed") == []
    ghost = call.replace("seq", "state.place[0]")
    read = found(with_functions(f"def finish(state, seq):\n    forget(state, {ghost})"), "no-ghost-needed")
    assert bool(read) == bool(call)


def test_a_guard_in_a_step_is_found() -> None:
    text = with_functions("def forget(state, block):\n    require(block >= 0, 'x')\n    state.cached[block] = False")
    assert found(text, "guards-first") == ["the step forget has a guard; only rules have"]


def test_a_function_with_seven_parameters_is_found() -> None:
    text = with_functions(
        "def holds(state, seq, block, a, b, c, d):\n    return state.position[seq][block] == a + b + c + d"
    )
    assert found(text, "few-parameters") == ["holds has 7 parameters, more than 6; put them into a record"]


def test_a_parameter_that_is_not_read_is_found() -> None:
    text = with_functions("def forget(state, block, seq):\n    state.cached[block] = False")
    assert found(text, "few-parameters") == ["forget does not read its parameter seq; leave it out"]


def test_a_claim_of_two_returns_is_found() -> None:
    source = "def counters_add_up(state):\n    if state.count[0][0] > 1:\n        return False\n    return True"
    texts = found(with_functions(source), "one-return")
    assert texts == ["counters_add_up is not one `return` of an expression; write `… if … else …`"]


@pytest.mark.parametrize("kind", ["invariants", "theorems", "contracts"])
def test_a_claim_of_a_property_that_does_not_exist_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = getattr(COLLECTED, kind)
    monkeypatch.setattr(COLLECTED, kind, [replace(first, property="read-bag"), *others])
    (one,) = lint("known-properties")
    assert one.text == f"{first.name} names the property 'read-bag', which does not exist; did you mean 'read-back'?"
    function, file = specification().functions[first.name]
    assert one.place == place_of(file, function)


def test_a_field_of_which_no_claim_speaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(COLLECTED, "invariants", [])
    texts = found(specification(), "writes-constrained")
    assert [text for text in texts if text.startswith("promote ")] == []  # its checks speak of what it writes
    assert [text.split()[2] for text in texts if text.startswith("finish ")] == [
        "done_filled,",
        "done_full,",
        "ending,",
        "first,",
        "num_blocks,",
        "num_filled,",
        "num_full,",
    ]
