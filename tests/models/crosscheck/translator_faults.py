"""Faults of the translator, each a changed line, that the cross-check must find."""

from kvproof.audit.faults.edits import Edit, Fault

LOSES_ITS_VALUE = "q = 1\nif state.f1[0]:\n    if not state.f1[0]:\n        q = [1 for p in SLOTS]\nx = q"
NAME = "{len(_BOUND) + further}{SERIAL}{next(_SERIALS)}"  # of a bound variable, after that of the text


def faults(what: str, *edits: Edit, program: int = 0, piece: str = "") -> Fault:
    """A fault of the translator. program: the first of the generated programs on which it is found.

    piece: what is put into programs to find it.
    """
    return Fault(what, edits, settings={"program": program, "piece": piece})


def fault(
    what: str, module: str, function: str, line: str, replacement: str, program: int = 0, piece: str = ""
) -> Fault:
    """A fault of one line in a module of the translator."""
    return faults(what, edit(module, function, line, replacement), program=program, piece=piece)


def edit(module: str, function: str, line: str, replacement: str) -> Edit:
    return Edit(function, line, replacement, f"models/kvproof/models/translation/{module}.py")


GENERATED = (  # found on generated programs
    faults(
        "bound variables share names",
        edit("conditions", "Conditions.fresh", NAME, "{further}{SERIAL}"),
        edit("terms", "bound_name", "return name", "return object()"),  # and no assertion notices it
        program=3,
    ),
    faults(
        "bound variables share names with those of another run",
        edit("conditions", "Conditions.fresh", NAME, "{len(self._bound) + further}{SERIAL}"),
        edit("terms", "bound_name", "return name", "return object()"),
        program=17,
    ),
    fault(
        "the sides of a branch are swapped",
        "maps",
        "merged",
        "chosen(condition, map, no.maps[name])",
        "chosen(condition, no.maps[name], map)",
        program=1,
    ),
    fault(
        "a write of one side of a branch stays on the other",
        "rules",
        "Run._branch",
        "self._block(node.orelse, frame)",
        "self._block(node.orelse, yes)",
        program=3,
    ),
    fault(
        "any is read as all",
        "states",
        "StateExpressions._quantified",
        'for_all if name == "all" else for_some',
        "for_all",
        program=2,
    ),
    fault(
        "same compares one slot less",
        "states",
        "StateExpressions._are_same",
        "is_between(0, slot, stop)",
        "is_between(0, slot, stop - 1)",
        program=1,
    ),
    fault(
        "a write changes the state that was read before it",
        "maps",
        "SymbolicState.written",
        "return SymbolicState({**self.maps, field: map})",
        "self.maps[field] = map; return self",
        program=12,
    ),
    fault(
        "the name of a comprehension is hidden by a local",
        "states",
        "StateExpressions._bulk",
        "found = self.value(node.elt, frame.named(**{name: index}))",
        "found = self.value(node.elt, frame if name in frame.names else frame.named(**{name: index}))",
        program=1,
    ),
    fault(
        "// truncates",
        "terms",
        "quotient",
        "one / divisor",
        "z3.If(one >= 0, one / divisor, -(-one / divisor))",
        program=14,
    ),
    fault("min is max", "terms", "least", "term < found", "term > found", program=7),
    fault("a true value counts 2", "terms", "number", "constant(1)", "constant(2)", program=1),
    fault(
        "a chain compares with its first number",
        "expressions",
        "Expressions._comparison",
        "left_node = right_node",
        "pass",
    ),
    fault(
        "a write ignores its second index",
        "maps",
        "Map.put",
        "zip(indexes, path,",
        "zip(indexes, path[:1],",
        program=12,
    ),
    fault(
        "spliced takes one slot more",
        "states",
        "StateExpressions._row_operation",
        "is_between(start, slot, stop)",
        "is_between(start, slot, stop + 1)",
        program=19,
    ),
    fault(
        "+= reads the old value twice",
        "rules",
        "Run._statement",
        "ast.BinOp(node.target, node.op, node.value)",
        "ast.BinOp(node.target, node.op, node.target)",
        program=3,
    ),
    fault(
        "what a step writes is lost",
        "rules",
        "Run._step",
        "after.names[parameters_of(function, file)[0]]",
        "frame.names[node.args[0].id]",
        program=3,
    ),
    fault(
        "a later guard replaces the earlier ones",
        "rules",
        "Run._require",
        "conjunction(self.conditions.guard, condition)",
        "condition",
        program=2,
    ),
    fault(
        "a guard or check ignores the branch that it stands in",
        "rules",
        "Run._require",
        "self.conditions.under_path(self.expressions.truth(node.args[0], frame))",
        "self.expressions.truth(node.args[0], frame)",
        program=10,
    ),
    fault(
        "ranges ignore what and and or have decided",
        "expressions",
        "Expressions._connective",
        "self.conditions.under(*before)",
        "self.conditions.under()",
        program=10,
    ),
    fault(
        "ranges on the second side of a choice assume the first",
        "expressions",
        "Expressions._choice",
        "self.assuming(negation(condition), node.orelse, frame)",
        "self.assuming(condition, node.orelse, frame)",
        program=4,
    ),
    fault(
        "ranges hold for some values of a quantifier",
        "conditions",
        "Conditions.demand",
        "for_all([variable], known, wanted)",
        "z3.Exists([variable], z3.And(known, wanted))",
        program=4,
    ),
    fault(
        "a subscript is not demanded to be in range",
        "states",
        "StateExpressions.in_range",
        "contains(domain, index)",
        "contains(domain, 0 * index)",
        program=1,
    ),
    fault(
        "a divisor may be 0",
        "expressions",
        "Expressions._arithmetic",
        "demand(0 < right",
        "demand(0 <= right",
        program=4,
    ),
    fault("a domain begins at 1", "sizes", "Universe.contains", "is_between(0,", "is_between(1,"),
    fault(
        "a parameter is never the last of its domain",
        "translator",
        "Translator.unknown",
        "contains(domain, number)",
        "contains(domain, number + 1)",
    ),
    fault("every size is 1 greater than its least", "sizes", "Universe.assumptions", ">= low", ">= low + 1", program=1),
    fault(
        "the first value of a field is 1 greater",
        "translator",
        "Translator._start",
        "*indexes: field.start",
        "*indexes: field.start + 1",
    ),
)
OUTSIDE = (  # found on programs outside the language
    fault(
        "an early return goes on",
        "rules",
        "Run._statement",
        "case ast.Return():",
        "case ast.Return():\n                return frame\n            case ast.Return() if True:",
        piece="return",
    ),
    fault(
        "a slot is written in place",
        "rules",
        "Run._written",
        "if before.domains[-1:] == IMMUTABLE and",
        "if False and",
        piece="state.f0[0][0] = 1",
    ),
    fault(
        "a row gets a second name",
        "rules",
        "Run._require_own_lists",
        "if isinstance(value, Map) and",
        "if False and",
        piece="x = state.f1",
    ),
    fault(
        "an if of a generator is ignored",
        "states",
        "StateExpressions._quantified",
        "generator.ifs for",
        "False for",
        piece="x = any(True for q in BLOCKS if q == 1)",
    ),
    fault(
        "a row of another length is assigned",
        "rules",
        "Run._written",
        "shape(value) != before.domains[len(indexes) :]",
        "False",
        piece="state.f1 = [True for q in SLOTS]",
    ),
    fault(
        "a name of one side of a branch has a value after it",
        "rules",
        "Run._branch",
        "names: dict[str, Any] = {}",
        "names = {**yes.names, **no.names}",
        piece="if state.f1[0]:\n    q = 1\nx = q",
    ),
    fault(
        "a name that lost its value in a branch has the value of before",
        "rules",
        "Run._branch",
        "names: dict[str, Any] = {}",
        "names = dict(frame.names)",
        piece=LOSES_ITS_VALUE,
    ),
)
