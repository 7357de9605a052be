"""Pieces outside the language, put into drawn programs.

A piece is put at any place of the rule or of the step that the translator reads: what stands behind a condition that is
known to be false never runs, and is not read.
"""

import ast
import copy
from functools import cache
from random import Random

from tests.models.crosscheck.programs import whole_program
from tests.models.crosscheck.running import FILE, Loaded, loaded

from kvproof.models.proofs.lints import lint
from kvproof.models.translation.errors import NotInLanguage
from kvproof.models.translation.text import Text
from kvproof.models.translation.translator import Translator
from kvproof.spec.native import FIELDS

STATEMENTS = (
    "return",
    "return 0",
    "if state.f1[0]:\n    return",
    "for q in BLOCKS:\n    state.f1[q] = True",
    "while state.f1[0]:\n    state.f1[0] = False",
    "try:\n    x = 1\nfinally:\n    x = 2",
    "with state:\n    x = 1",
    "match 1:\n    case 1:\n        x = 1",
    "assert state.f1[0]",
    "raise ValueError",
    "del state.f1",
    "global f1",
    "import os",
    "def inner():\n    return 1",
    "class Inner:\n    x = 1",
    "other = state",
    "state = 1",
    "x: int = 1",
    "x = y = 1",
    "x, y = 1, 2",
    "print(1)",
    "state.f1[0]",
    "1 + 1",
    "state.f0[0][0] = 1",
    "state.f0[0][0] += 1",
    "state.f1 = [True for q in SLOTS]",
    "state.f1[0] = state.f0[0]",
    "state.f1[0][0] = True",
    "q.f1[0] = True",
    "x = state.f1",
    "x = copied(state.f1)\nstate.f1 = x",
    "x = put(state.f1, 0, True) if state.f1[0] else state.f1",
    "move(state, state.f1)",
    "move(move)",
    "amount(state)",
    "x = [q for q in BLOCKS]\ny = q",
    "if state.f1[0]:\n    q = 1\nx = q",
    "if state.f1[0]:\n    q = 1\nelse:\n    q = [1 for p in SLOTS]\nx = q",
    "BLOCKS = 1",
    "NUM_BLOCKS = 1",
    "min = 1\nx = min(1, 2)",
    "x = any(all(1 == 1 for q in SEQS) for all in BLOCKS)",
    "require(state.f1[0])",
    "check(state.f1[0], property='x')",
    "advance(state)",
)
FOUND_BY_A_LINT = (
    "state.f1[0] = True\nrequire(state.f1[0], 'late')",
    "state.f1[0] = state.f5{ghost} == 0",
)
EXPRESSIONS = (
    "q",
    "1 / 2",
    "2 ** 3",
    "1 << 1",
    "1 | 2",
    "~1",
    "1.5",
    "None",
    "'text'",
    "f'{1}'",
    "[1, 2]",
    "(1, 2)",
    "{1}",
    "{1: 2}",
    "[*state.f1]",
    "{q for q in BLOCKS}",
    "{q: 1 for q in BLOCKS}",
    "(q for q in BLOCKS)",
    "[1 for q in BLOCKS if q == 1]",
    "[1 for q in BLOCKS for p in BLOCKS]",
    "[1 for q in range(2)]",
    "[1 for q, p in BLOCKS]",
    "(lambda: 1)()",
    "(q := 1)",
    "(yield 1)",
    "state.f1[0] is True",
    "1 in state.f0[0]",
    "state.f0[0][0:1]",
    "state.f0[0, 0]",
    "state.f1[0][0]",
    "state.nothing[0]",
    "state.f0[0] == state.f0[0]",
    "state.f0[0] + state.f0[0]",
    "state.f1.copy()",
    "len(state.f1)",
    "sum(1 for q in BLOCKS)",
    "sorted(state.f1)",
    "bool(1)",
    "max(1)",
    "max(1, 2, key=abs)",
    "min(q for q in BLOCKS)",
    "abs(1, 2)",
    "not 1",
    "1 and state.f1[0]",
    "1 if 1 else 2",
    "1 if state.f1[0] else state.f0[0]",
    "all([True])",
    "any(True for q in BLOCKS if q == 1)",
    "all(state.f1[q] for q in range(2))",
    "implies(state.f1[0])",
    "implies(condition=state.f1[0], conclusion=state.f1[0])",
    "copied(1)",
    "put(state.f0[0], 0)",
    "put(state.f0[0], 0, state.f0[0])",
    "put(*state.f0[0])",
    "spliced(state.f0[0], 0, 1, state.f1)",
    "same(state.f1, state.f1, 1)",
    "amount(1, 2, 3, 4, 5, 6)",
    "move(state)",
    "BLOCKS == 1",
)
WITHOUT_A_VALUE = (  # names that stand for no value, there or anywhere
    "q = 1\nif state.f1[0]:\n    if not state.f1[0]:\n        q = [1 for p in SLOTS]\nx = q",
    "x = BLOCKS",
    "if state.f1[0]:\n    x = BLOCKS\nelse:\n    x = SEQS",
    "x = BLOCKS if state.f1[0] else SEQS",
    "x = any(q == 1 for q in (BLOCKS if state.f1[0] else SEQS))",
    "x = [1 for q in (BLOCKS if state.f1[0] else SEQS)]",
    "x = all(q >= 0 for q in COUNTS)",
    "x = amount(BLOCKS, 1)",
    "other = state if state.f1[0] else state",
)
PIECES = (
    *STATEMENTS,
    *FOUND_BY_A_LINT,
    *(f"x = {one} == 1" if one == "BLOCKS" else f"x = {one}" for one in EXPRESSIONS),
    *WITHOUT_A_VALUE,
)
BODIES = (  # of a function, in place of one `return`
    "x = 1\nreturn x",
    "if NUM_BLOCKS == 1:\n    return 1\nreturn 2",
    "return",
    "pass",
    "return 1\nreturn 2",
    "for q in BLOCKS:\n    return 1",
    "return amount(1)",
)
LINTS = ("guards-first", "no-ghost-needed", "one-return", "no-recursion", "no-aliasing")  # others ask for good style
MARK = "check(1 == 1, 'mark')"


def with_piece(source: str, piece: str, place: int) -> tuple[str, range]:
    """The program with a piece at a place of the rule or the step, and the lines of the piece."""
    before, tree = ast.unparse(ast.parse(source)).splitlines(), ast.parse(source)
    bodies = [
        part
        for function in tree.body
        if isinstance(function, ast.FunctionDef) and function.name in ("advance", "move")
        for node in ast.walk(function)
        for part in (getattr(node, "body", None), getattr(node, "orelse", None))
        if isinstance(part, list) and part and not isinstance(part[0], ast.If)  # it may be written as `elif`
    ]
    places = [(body, index) for body in bodies for index in range(len(body) + 1)]
    body, index = places[place % len(places)]
    body[index:index] = copy.deepcopy(ast.parse(piece).body)
    after = ast.unparse(tree)
    first = next(
        line
        for line, (one, other) in enumerate(zip([*before, ""], after.splitlines(), strict=False), 1)
        if one != other
    )
    return after, range(first, first + len(piece.splitlines()))


def text_of(source: str, program: Loaded) -> Text:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return Text({node.name: (node, FILE) for node in functions}, program.text.constants)


def is_read(source: str, program: Loaded) -> bool:
    """Whether the translator reads the mark that stands in the program."""
    translator = Translator(text=text_of(source, program))
    arguments = (one.value for one in translator.parameters(program.names["advance"]))
    return any(
        one.property == "mark" for one in translator.run("advance", translator.unknown_state(), *arguments).checks
    )


def place_of_refusal(source: str, program: Loaded) -> list[str]:
    """File and line of what the translator refuses, if it refuses anything."""
    translator = Translator(text=text_of(source, program))
    try:
        arguments = (one.value for one in translator.parameters(program.names["advance"]))
        translator.run("advance", translator.unknown_state(), *arguments)
    except NotInLanguage as error:
        return [f"{error.file}:{error.line}"]
    return []


def places_of_findings(text: Text) -> list[str]:
    """File and line of what the lints of the language find."""
    return [finding.place for name in LINTS for finding in lint(name, text)]


@cache
def is_place_read(seed: int) -> bool:
    """Whether the translator reads what stands at the place of a seed in the program of that seed."""
    source = whole_program(seed).source
    with loaded(source) as program:
        try:
            return is_read(with_piece(source, MARK, place_of(seed))[0], program)
        except NotInLanguage:  # it divides by a known 0
            return False


def place_of(seed: int) -> int:
    return Random(seed).randrange(1000)


def refused(piece: str, seed: int) -> bool:
    """Put a piece into a drawn program. False if its place is not read."""
    if not is_place_read(seed):
        return False
    source = whole_program(seed).source
    with loaded(source) as program:
        is_lint = piece in FOUND_BY_A_LINT
        piece = piece.replace("{ghost}", "[0]" * len(FIELDS["f5"].domains))
        faulty, lines = with_piece(source, piece, place_of(seed))
        places = places_of_findings(text_of(faulty, program)) if is_lint else place_of_refusal(faulty, program)
        assert any(int(one.rpartition(":")[2]) in lines for one in places), f"{piece}\n{lines}: {places}\n{faulty}"
        assert all("generated/program.py:" in one for one in places)
    return True
