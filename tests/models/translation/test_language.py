"""Text outside the language is refused with its place and a hint; text in the language is read correctly."""

import ast
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest
import z3

from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.text import specification
from kvproof.models.translation.translator import Translator
from kvproof.spec import language
from kvproof.spec.text import rules


def translator_of(source: str) -> Translator:
    """A translator of the specification in which `finish` and `holds` are replaced."""
    text = specification()
    for function in ast.parse(textwrap.dedent(source)).body:
        assert isinstance(function, ast.FunctionDef)
        text = text.replaced(function.name, function)
    return Translator(text=text)


def run(source: str) -> Any:
    translator = translator_of(source)
    return translator.run("finish", translator.unknown_state(), z3.Int("seq"))


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("for b in BLOCKS:\n        state.refcount[b] = 0", "For is not in the language"),
        ("while state.live[seq]:\n        pass", "While is not in the language"),
        ("try:\n        pass\n    finally:\n        pass", "Try is not in the language"),
        ("state.refcount[seq] = state.refcount[seq] / 2", "Div is not in the language"),
        ("state.refcount[seq] = 1 << seq", "LShift is not in the language"),
        ("state.live[seq] = state.refcount[seq] is None", "the comparison Is is not in the language"),
        ("state.live[seq] = bool(seq)", "bool is no function of the language"),
        ("state.live[seq] = sorted(state.table)[0]", "sorted is no function of the language"),
        ("state.live[seq] = {1: True}[1]", "Dict is not in the language"),
        ("state.live[seq] = (lambda: True)()", "Call is not in the language"),
        ("state.nothing[seq] = True", "the target of the assignment is neither a local name nor a field"),
        ("state.live[seq] = state.nothing[seq]", "state.nothing is no field of a state"),
        ("state.live[seq] = unheard_of", "the name unheard_of has no value here"),
        ("state.live[seq][seq] = True", "one subscript too many"),
        ("state.live[seq] = state.live[seq][seq]", "one subscript too many"),
        ("state.live = True", "the value has another shape"),
        ("state.table[seq] = 1", "the value has another shape"),
        ("state.position[seq] = copied(state.table[seq])", "the value has another shape"),
        ("state.refcount = [0 for s in SEQS]", "the value has another shape"),
        ("state.content[0] = put(state.content[0], 0, state.content[0])", "the value has another shape"),
        ("state.live[seq] = same(state.table[0], state.table[seq], 1)", "a row of slots is needed here"),
        ("state.content[0] = spliced(state.content[0], 0, 1, state.pins)", "a row of slots is needed here"),
        ("x = state.content[0] if state.live[seq] else 1", "a choice between values of different shapes"),
        (
            "if state.live[seq]:\n        x = 1\n    else:\n        x = state.content[0]\n    y = x",
            "the name x has no value",
        ),
        ("state.live[seq] = 2", "state.live[seq] is a flag, and a number is assigned to it"),
        ("state.live[seq] = state.refcount[0]", "state.live[seq] is a flag, and a number is assigned to it"),
        ("state.live[seq] = 1 if state.live[seq] else 0", "state.live[seq] is a flag, and a number is assigned to it"),
        ("state.live = [2 for s in SEQS]\n    check(state.live[seq] == 2, 'x')", "state.live is a flag, and a number"),
        ("state.content[0][0] = 1", "a slot of a row is written in place"),
        (
            "b = 0\n    state.member[b] = [state.member[b][b] for b in STATUSES]",
            "would have two names",
        ),
        ("state.table[seq] = state.table[0]", "state.table[0] would have two names"),
        ("x = state.pins\n    state.pins[0] = 1", "state.pins would have two names"),
        ("x = copied(state.pins)\n    state.pins = x\n    state.pins[0] = 1", "x would have two names"),
        ("state.place = put(state.place, 0, 1) if state.live[seq] else state.pins", "state.pins would have two names"),
        ("state.rank = copied(state.rank)", "copied(state.rank) would have two names"),
        (
            "state.table = put(state.table, 0, state.table[1])",
            "put(state.table, 0, state.table[1]) would have two names",
        ),
        ("state.table = [state.table[0] for s in SEQS]", "[state.table[0] for s in SEQS] would have two names"),
        ("know(state, seq, 0, state.table[0], 1)", "state.table[0] would have two names"),
        ("state.refcount[0] = NUM_BLOCKS\n    NUM_BLOCKS = 1", "NUM_BLOCKS is a local name here, and also a constant"),
        (
            "holds = 1\n    check(holds(state, 0, 0), 'x')",
            "holds is a local name here, and also a constant or a function",
        ),
        ("x = all(min(1, min) == 1 for min in SEQS)", "min is a local name here, and also a constant or a function"),
        ("state = 1", "state is a state and cannot be assigned"),
        ("check(state.live[seq], property='x')", "an argument given by name"),
        ("state.live[seq] = state.refcount[seq] and state.live[seq]", "a condition that is no truth value"),
        ("if state.refcount[seq]:\n        pass", "a condition that is no truth value"),
        ("state.refcount[seq] = state.refcount[seq] // 0", "division by 0"),
        ("state.refcount = [1 for s in range(seq)]", "the generator does not run over a domain"),
        ("state.refcount = [1 for b in BLOCKS if b > 1]", "a comprehension with an `if` or over two domains"),
        ("state.live[seq] = all([state.live[s] for s in SEQS])", "all of no generator"),
        ("state.live[seq] = any(state.live[s] for s in SEQS if s)", "an `if` in a generator"),
        ("state.live[seq] = holds(state, seq)", "holds takes 3 arguments"),
        ("state.live[seq] = holds(state, seq, block=1)", "an argument given by name"),
        ("nothing(state, seq)", "nothing is no step of the text"),
        ("holds(state, seq, seq)", "holds is a predicate or function, and its value is not used"),
        ("forget(seq, state)", "forget is called with 1 states"),
        ("other = state\n    other.live[seq] = True", "other is another name for a state"),
        ("return", "finish returns before its end"),
        ("state.live[seq] = False\n    return 0", "finish returns before its end"),
        ("if state.live[seq]:\n        return 0\n    state.live[seq] = False", "finish returns before its end"),
        ("require(state.live[seq])", "require without its sentence"),
        ("check(state.live[seq], 'progress', 'more')", "check takes no 3 arguments"),
        ("require(state.live[seq], 'it is live', 'progress', 'more')", "require takes no 4 arguments"),
        ("retire(state, seq, **seq)", "an argument given by name"),
        ("check(seq == seq or (yield), 'progress')", "Yield is not in the language"),
        ("if state.live[seq]:\n        x = 1\n    state.refcount[seq] = x", "the name x has no value here"),
    ],
)
def test_a_construct_outside_the_language_is_refused_with_its_line(statement: str, what: str) -> None:
    with pytest.raises(NotInLanguage) as refusal:
        run(f"def finish(state, seq):\n    {statement}\n")
    file, line, *rest = str(refusal.value).split(":", 2)
    assert file.endswith("rules.py")
    assert int(line) >= 2
    assert what in rest[0]
    assert len(str(refusal.value).splitlines()) == 3  # what is wrong; the line; what to write instead


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("yield", "Yield is not in the language"),
        ("x = yield from state", "YieldFrom is not in the language"),
        ("global NONE", "Global is not in the language"),
        ("x = [1 async for b in BLOCKS]", "this is no Python"),
        ("nonlocal x", "Nonlocal is not in the language"),
        ("import os as NONE", "NONE is a local name"),
        ("from os import path as NONE", "NONE is a local name"),
        ("def NONE(): pass", "NONE is a local name"),
        ("class NUM_BLOCKS: pass", "NUM_BLOCKS is a local name"),
        ("del NONE", "NONE is a local name"),
        ("try:\n            pass\n        except E as NONE:\n            pass", "NONE is a local name"),
        ("match seq:\n            case NONE:\n                pass", "NONE is a local name"),
    ],
)
def test_a_part_that_never_runs_cannot_change_the_rest(statement: str, what: str) -> None:
    """Python decides by the whole text whether a function is a generator, and which of its names are local."""
    with pytest.raises(NotInLanguage, match=what):
        run(f"def finish(state, seq):\n    check(NONE == -1, 'progress')\n    if 1 == 2:\n        {statement}\n")


def test_a_part_that_never_runs_may_have_names_of_its_own() -> None:
    outcome = run("def finish(state, seq):\n    if 1 == 2:\n        import os\n    check(NONE == -1, 'progress')")
    assert [one.formula for one in outcome.checks] == [True]


def test_a_value_that_never_runs_cannot_make_a_generator_of_a_predicate() -> None:
    """Run by Python, it would be true in every state."""
    with pytest.raises(NotInLanguage, match="Yield is not in the language"):
        run(
            """
            def holds(state, seq, block):
                return False if 1 == 1 else (yield)
            def finish(state, seq):
                check(not holds(state, seq, 0), 'progress')
            """
        )


def test_a_number_that_stands_for_a_size_is_no_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NUM_INDEXES` is 1 in the module of the language, and a rule that imports it means the length of tables."""
    monkeypatch.setattr(rules, "NUM_INDEXES", language.NUM_INDEXES, raising=False)
    with pytest.raises(NotInLanguage, match="the name NUM_INDEXES has no value"):
        run("def finish(state, seq):\n    check(NUM_INDEXES == 1, 'progress')")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("def finish(state): pass", r"finish has the parameters \(state\)\n.*\n  keep those .*: \(state, seq\)"),
        ("def finish(state, state): pass", r"finish has the parameters \(state, state\)"),
        ("def finish(seq, state): pass", r"finish has the parameters \(seq, state\)"),
        ("def finish(state, seq: BlockId): pass", "finish has BlockId where the specification has SeqId"),
        ("@cache\n@rule\ndef finish(state, seq): pass", "finish has cache, rule where the specification has rule"),
        ("@predicate\ndef pool_size(pool): pass", "pool_size has predicate where the specification has function"),
        ("from kvproof.spec.text.state import USED as FREE", "USED is imported under another name, FREE"),
    ],
)
def test_a_head_that_would_have_no_effect_is_refused(source: str, what: str) -> None:
    """The prover takes the parameters, their types and the decorators from the specification."""
    with pytest.raises(NotInLanguage, match=what):
        specification().rewritten(source)


def test_the_head_of_the_specification_may_stand_there_in_full_or_in_part() -> None:
    plain = "from kvproof.spec.language import rule\n@rule\ndef finish(state: State, seq: SeqId) -> None: pass"
    for source in (plain, "def finish(state, seq): pass", "def finish(state, seq: int): pass"):
        assert len(specification().rewritten(source).functions["finish"][0].body) == 1


def test_a_word_that_calls_itself_is_refused() -> None:
    with pytest.raises(NotInLanguage, match="calls itself"):
        run(
            """
            def holds(state, seq, block):
                return holds(state, seq, block)
            def finish(state, seq):
                state.live[seq] = holds(state, seq, 0)
            """
        )


def test_a_function_of_several_statements_is_refused() -> None:
    with pytest.raises(NotInLanguage, match="let it be one `return`"):
        run(
            """
            def holds(state, seq, block):
                if state.live[seq]:
                    return True
                return False
            def finish(state, seq):
                state.live[seq] = holds(state, seq, 0)
            """
        )


def test_parameters_that_are_given_by_name_are_refused() -> None:
    with pytest.raises(NotInLanguage, match="holds has parameters that are given by name"):
        run("def holds(state, seq, *, block):\n    return True\ndef finish(state, seq):\n    x = holds(state, seq, 0)")


@pytest.mark.parametrize(
    "statement",
    [
        "state.content[0] = state.content[1]",
        "state.tokens[0] = copied(state.tokens[1])",
        "state.table = [put(state.table[s], 0, 0) if s == seq else state.table[s] for s in SEQS]",
        "x = copied(state.pins)\n    forget(state, x[0])",
        "x = [0 for b in BLOCKS]\n    state.pins = copied(x)",
    ],
)
def test_rows_that_no_write_can_change_through_another_name_are_read(statement: str) -> None:
    run(f"def finish(state, seq):\n    {statement}\n")


def test_a_comparison_is_defined_if_an_earlier_one_of_its_chain_fails() -> None:
    outcome = run(
        "def finish(state, seq):\n    check(0 <= seq < NUM_SEQS <= 7 // (seq + 1) < state.refcount[seq], 'x')"
    )
    divisor, *_, subscript = outcome.demands
    seq, size = z3.Ints("seq NUM_SEQS")
    solver = z3.Solver()
    solver.add(z3.Not(divisor.formula))
    assert solver.check() == z3.unsat
    where_seq_is_none = z3.substitute(subscript.formula, (seq, z3.IntVal(-1)), (size, z3.IntVal(0)))
    assert z3.is_true(z3.simplify(where_seq_is_none))


def test_both_sides_of_an_unknown_branch_are_merged() -> None:
    outcome = run(
        """
        def finish(state, seq):
            if state.live[seq]:
                count = state.refcount[0] + 1
                state.refcount[1] = count
            else:
                count = 7
            state.refcount[0] = count
        """
    )
    live, refcount = (
        z3.Function(name, z3.IntSort(), sort) for name, sort in (("live", z3.BoolSort()), ("refcount", z3.IntSort()))
    )
    is_live = live(z3.Int("seq"))
    after = outcome.state.maps["refcount"]
    same_as_hand_made = [
        after.read(0) == z3.If(is_live, refcount(0) + 1, 7),
        after.read(1) == z3.If(is_live, refcount(0) + 1, refcount(1)),
        after.read(2) == refcount(2),
    ]
    solver = z3.Solver()
    solver.add(z3.Not(z3.And(same_as_hand_made)))
    assert solver.check() == z3.unsat


def test_a_comprehension_reads_the_state_of_its_own_moment() -> None:
    outcome = run(
        """
        def finish(state, seq):
            state.refcount = [state.refcount[b] + 1 for b in BLOCKS]
            state.refcount[0] = 0
            state.refcount = [state.refcount[b] + 1 for b in BLOCKS]
        """
    )
    refcount = z3.Function("refcount", z3.IntSort(), z3.IntSort())
    assert outcome.state.maps["refcount"].read(0) == 1
    assert z3.simplify(outcome.state.maps["refcount"].read(3)).eq(z3.simplify(refcount(3) + 2))


def test_variables_of_quantifiers_within_each_other_have_different_names() -> None:
    outcome = run(
        """
        def finish(state, seq):
            state.content = [
                [1 if same(state.memory[o], state.memory[b], BLOCK_SIZE) else 0 for o in SLOTS] for b in BLOCKS
            ]
            check(same(state.content[0], state.content[0], BLOCK_SIZE), "lists-agree")
            check(same(state.content[0], state.memory[0], BLOCK_SIZE), "lists-agree")
        """
    )
    differs = outcome.checks[1].formula
    names = set()

    def variables(term: z3.ExprRef, bound: tuple[str, ...]) -> None:
        if isinstance(term, z3.QuantifierRef):
            assert term.var_name(0) not in bound
            names.add(term.var_name(0))
            variables(term.body(), (*bound, term.var_name(0)))
            return
        for part in term.children():
            variables(part, bound)

    assert isinstance(differs, z3.ExprRef)
    variables(differs, ())
    assert len(names) == 2


def test_every_subscript_demands_its_range_where_it_is_reached() -> None:
    outcome = run(
        """
        def finish(state, seq):
            require(seq >= 0, "the sequence has a number")
            if seq < NUM_SEQS:
                state.live[seq] = False
            check(all(implies(state.live[s], state.refcount[s] > 0) for s in SEQS), "lists-agree")
        """
    )
    demands = {demand.text: demand for demand in outcome.demands}
    assert set(demands) == {
        "state.live[seq] has a Seq in range",
        "state.live[s] has a Seq in range",
        "state.refcount[s] has a Block in range",
    }

    def holds_always(text: str) -> bool:
        solver = z3.Solver()
        solver.add(z3.Int("NUM_SEQS") >= 0, z3.Not(demands[text].formula))
        return solver.check() == z3.unsat

    assert holds_always("state.live[seq] has a Seq in range")
    assert holds_always("state.live[s] has a Seq in range")
    assert not holds_always("state.refcount[s] has a Block in range")  # there may be fewer blocks than sequences
    assert demands["state.live[seq] has a Seq in range"].place.endswith("rules.py:5")


@dataclass(frozen=True)
class Pair:
    one: int
    other: Any


def test_a_record_is_read_by_its_fields() -> None:
    translator = translator_of("def holds(pair):\n    return pair.one == pair.other")
    x = z3.Int("x")
    value = translator.value("holds", {"pair": Pair(1, x)}).value
    assert isinstance(value, z3.BoolRef)
    assert str(value) == "x == 1"


def test_a_record_without_that_field_is_refused() -> None:
    translator = translator_of("def holds(pair):\n    return pair.nothing == 1")
    with pytest.raises(NotInLanguage, match=r"pair\.nothing is no field of a state or record"):
        translator.value("holds", {"pair": Pair(1, 1)})


def test_a_guard_of_what_a_rule_calls_is_refused_because_natively_its_refusal_is_lost() -> None:
    with pytest.raises(NotInLanguage, match="begin_free is called, and has a guard"):
        run(
            """
            def begin_free(state, seq):
                require(state.live[seq], "the sequence is live")
            def finish(state, seq):
                begin_free(state, seq)
            """
        )


def test_a_default_of_a_parameter_is_refused_because_it_is_run_and_never_read() -> None:
    with pytest.raises(NotInLanguage, match="finish has a parameter with a default"):
        run("def finish(state, seq=print(1)):\n    state.live[seq] = False")


def test_a_claim_without_a_value_is_refused() -> None:
    translator = translator_of('def at_rest_every_block_is_unused(state):\n    """Nothing is claimed."""')
    with pytest.raises(NotInLanguage, match="at_rest_every_block_is_unused has no value"):
        translator.holds("at_rest_every_block_is_unused", translator.unknown_state())


def test_a_claim_that_is_no_truth_value_is_refused_with_its_line() -> None:
    translator = translator_of("def counters_add_up(state):\n    return state.count[0][0]")
    with pytest.raises(NotInLanguage, match=r":1: counters_add_up is no truth value"):
        translator.holds("counters_add_up", translator.unknown_state())
