"""Each lint is silent on the specification as it is, and names the line of what breaks it."""

import ast
import textwrap

import pytest

from kvproof.models.proofs.lints import lint, lint_names, lints
from kvproof.models.translation.text import Text, specification
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
        ("no-aliasing", "state.table[seq] = state.table[0]", "state.table[0] would have two names"),
        ("no-aliasing", "row = state.table[0]", "state.table[0] would have two names"),
        ("no-aliasing", "state.table = [state.table[0] for s in SEQS]", "state.table[0] would have two names"),
        ("no-recursion", "state.live[seq] = False\nfinish(state, seq)", "calls in a circle"),
        ("no-aliasing", "know(state, seq, 0, state.table[0], 1)", "state.table[0] would have two names"),
        ("no-aliasing", "x = [0 for b in BLOCKS]\nstate.pins = x\nstate.pins[0] = 1", "x would have two names"),
        ("one-return", "if seq == 0:\n    return 0\nstate.live[seq] = False", "finish returns; write its statements"),
    ],
)
def test_a_lint_names_what_breaks_it(name: str, body: str, text: str) -> None:
    findings = found(with_functions("def finish(state, seq):\n" + textwrap.indent(body, "    ")), name)
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
    ],
)
def test_a_lint_is_silent_where_nothing_is_wrong(body: str) -> None:
    changed = with_functions("def finish(state, seq):\n" + textwrap.indent(body, "    "))
    assert {name: found(changed, name) for name in lint_names()} == {name: [] for name in lint_names()}


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
