"""What the text of the specification must satisfy for its proofs to mean what they say; decided by its syntax alone.

guards-first        guards stand before every write and every check: a rule that is not enabled changes nothing
no-ghost-needed     no real field, and no guard, depends on a ghost field; a run without ghosts reads none
writes-constrained  for each field that a rule writes, an invariant or a check of the rule reads that field
one-return          predicates, functions and claims are one `return`; rules and steps have none
no-recursion        no function or step calls itself, directly or through others
no-aliasing         rows that are changed in place are copied, so two names never stand for one row
few-parameters      a predicate, function or step has at most six parameters, and reads all of them
stated-bounds       a quantifier over a domain without end states a bound where more than a claim depends on it
known-properties    claims, checks and guards name properties that exist
"""

import ast
import difflib
import graphlib
from collections.abc import Callable, Iterator, Mapping

from kvproof.models.proofs.endless_quantifiers import endless_quantifiers
from kvproof.models.proofs.ghost_fields import ghost_findings
from kvproof.models.proofs.lint_error import LintError
from kvproof.models.translation.dependencies import calls, fields_read, fields_written, nodes_of, reached
from kvproof.models.translation.text import Text, element_left, parameters_of, place_of, returned, specification
from kvproof.spec.language import Claim, Contract, Field
from kvproof.spec.store.machine import STORES
from kvproof.spec.syntax_trees import called, fields_in, target_of
from kvproof.spec.text.properties import MEANINGS

NUM_PARAMETERS_MAX = 6


def lint_names() -> list[str]:
    """The names of the lints."""
    return list(_LINTS)


def lint(name: str, text: Text | None = None) -> list[LintError]:
    """The findings of one lint in a text; in both specifications if none is given."""
    texts = [text] if text is not None else [specification(), specification(STORES)]
    return [finding for one in texts for finding in _LINTS[name](one)]


def lints(text: Text | None = None) -> Iterator[tuple[str, list[LintError]]]:
    """The name and the findings of every lint, for a text; for the specification if none is given."""
    return ((name, lint(name, text)) for name in _LINTS)


# Guards ----------------------------------------------------------------------------------------------------------


def _guards_first(text: Text) -> Iterator[LintError]:
    for step in text.system.collected.steps:
        function, file = text.functions[step.__name__]
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and called(node) == "require":
                yield LintError(place_of(file, node), f"the step {function.name} has a guard; only rules have")
    for rule in text.system.collected.rules:
        function, file = text.functions[rule.__name__]
        yield from _late_guards(function.body, file, [False])


def _late_guards(body: list[ast.stmt], file: str, has_acted: list[bool]) -> Iterator[LintError]:
    """Guards that stand after a write or a check. Updates `has_acted`."""
    for node in body:
        if isinstance(node, ast.If):
            sides = [[has_acted[0]], [has_acted[0]]]
            for side, statements in zip(sides, (node.body, node.orelse), strict=True):
                yield from _late_guards(statements, file, side)
            has_acted[0] = sides[0][0] or sides[1][0]
        elif called(node) == "require":
            if has_acted[0]:
                yield LintError(place_of(file, node), f"a guard after a write or a check: {ast.unparse(node)}")
        elif called(node) is not None or target_of(node)[1]:
            has_acted[0] = True


# Ghosts ----------------------------------------------------------------------------------------------------------


def _no_ghost_needed(text: Text) -> Iterator[LintError]:
    for rule in text.system.collected.rules:
        yield from ghost_findings(text, rule.__name__)


# Writes ----------------------------------------------------------------------------------------------------------


def _writes_constrained(text: Text) -> Iterator[LintError]:
    constrained = set[str]().union(*(fields_read(text, claim.name) for claim in text.system.collected.invariants))
    for rule in text.system.collected.rules:
        function, file = text.functions[rule.__name__]
        checked = _fields_checked(text, rule.__name__)
        for name in sorted(fields_written(text, rule.__name__) - constrained - checked):
            yield LintError(
                place_of(file, function), f"{function.name} writes {name}, and no invariant or check reads it"
            )


def _fields_checked(text: Text, name: str) -> set[str]:
    """The fields that the checks of a rule read, those in its steps included."""
    found: set[str] = set()
    for one in reached(text, name):
        for node in nodes_of(text.functions[one][0]):
            if isinstance(node, ast.stmt) and called(node) == "check":
                found |= fields_in(node, text.system.fields.keys())
                functions = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} & text.functions.keys()
                found = found.union(*(fields_read(text, one) for one in functions))
    return found


# Calls, returns and rows ---------------------------------------------------------------------------------------


def _no_recursion(text: Text) -> Iterator[LintError]:
    graph = {name: {callee for callee, _ in calls(text, name)} for name in text.functions}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = error.args[1]
        function, file = text.functions[circle[0]]
        yield LintError(place_of(file, function), f"calls in a circle: {' < '.join(circle)}")


def _one_return(text: Text) -> Iterator[LintError]:
    for marked in (*text.system.collected.rules, *text.system.collected.steps):
        function, file = text.functions[marked.__name__]
        for node in ast.walk(function):
            if isinstance(node, ast.Return):
                yield LintError(place_of(file, node), f"{function.name} returns; write its statements with if and else")
    collected = text.system.collected
    claims = [claim.name for claim in (*collected.invariants, *collected.theorems)]
    for name in (*(marked.__name__ for marked in collected.functions), *claims):
        function, file = text.functions[name]
        if returned(function) is None:
            yield LintError(
                place_of(file, function), f"{name} is not one `return` of an expression; write `… if … else …`"
            )


def _few_parameters(text: Text) -> Iterator[LintError]:
    for marked in (*text.system.collected.functions, *text.system.collected.steps):
        function, file = text.functions[marked.__name__]
        place, parameters = place_of(file, function), parameters_of(function, file)
        if len(parameters) > NUM_PARAMETERS_MAX:
            what = f"{function.name} has {len(parameters)} parameters, more than {NUM_PARAMETERS_MAX}"
            yield LintError(place, f"{what}; put them into a record")
        read = {node.id for statement in function.body for node in ast.walk(statement) if isinstance(node, ast.Name)}
        for name in parameters:
            if name not in read:
                yield LintError(place, f"{function.name} does not read its parameter {name}; leave it out")


def _no_aliasing(text: Text) -> Iterator[LintError]:
    step_names = {step.__name__ for step in text.system.collected.steps}
    for marked in (*text.system.collected.rules, *text.system.collected.steps):
        function, file = text.functions[marked.__name__]
        lists = {name for node in ast.walk(function) if (name := _local_list(node)) is not None}
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.AugAssign)):
                values = [one for one in _values(node.value) if not _is_left_in_place(node, one)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in step_names:
                values = [value for argument in node.args for value in _values(argument)]
            else:
                continue
            for value in values:
                if _is_changeable_row(value, text.system.fields) or (isinstance(value, ast.Name) and value.id in lists):
                    what = f"{ast.unparse(value)} would have two names: {ast.unparse(node)[:80]}"
                    yield LintError(place_of(file, node), f"{what}; write copied(…)")


def _local_list(node: ast.AST) -> str | None:
    """The local name to which a statement assigns a new list of rows or values; None for other statements."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.ListComp()):
            return name
    return None


def _values(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that an expression may evaluate to without a copy."""
    if isinstance(node, ast.IfExp):
        yield from _values(node.body)
        yield from _values(node.orelse)
    elif isinstance(node, ast.ListComp):
        yield from _values(node.elt)
    else:
        yield node


def _is_changeable_row(node: ast.expr, fields: Mapping[str, Field]) -> bool:
    """Whether it is a row of a field that a write may change in place. Rows of slots are replaced as a whole."""
    num_indexes = 0
    while isinstance(node, ast.Subscript):
        num_indexes, node = num_indexes + 1, node.value
    if not isinstance(node, ast.Attribute) or node.attr not in fields:
        return False
    left = fields[node.attr].domains[num_indexes:]
    return bool(left) and not (len(left) == 1 and left[0].name == "Slot")


def _is_left_in_place(node: ast.Assign | ast.AugAssign, value: ast.expr) -> bool:
    """Whether the assignment leaves the row where it was: `state.f = [… else state.f[b] for b in BLOCKS]`."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    match node.value:
        case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=name))]):
            return ast.unparse(value) == element_left(ast.unparse(target), name)
    return False


# Properties ------------------------------------------------------------------------------------------------------


def _known_properties(text: Text) -> Iterator[LintError]:
    collected = text.system.collected
    claims: list[Claim | Contract] = [*collected.invariants, *collected.theorems, *collected.contracts]
    named: list[tuple[str, ast.AST, object, str]] = []
    for claim in claims:
        marked, file = text.functions[claim.name]
        named.append((file, marked, claim.property, claim.name))
    for function, file in text.functions.values():
        for node in ast.walk(function):
            match node:
                case ast.Call(ast.Name("check"), [_, ast.Constant(property)]):
                    named.append((file, node, property, "check"))
                case ast.Call(ast.Name("require"), [_, _, ast.Constant(property)]):
                    named.append((file, node, property, "require"))
    for source, place, name, what in named:
        if name not in MEANINGS:
            similar = difflib.get_close_matches(str(name), MEANINGS, 1)
            instead = (
                f"did you mean {similar[0]!r}?" if similar else "kvproof/spec/text/properties.py lists all properties"
            )
            wrong = f"{what} names the property {name!r}, which does not exist"
            yield LintError(place_of(source, place), f"{wrong}; {instead}")


_LINTS: dict[str, Callable[[Text], Iterator[LintError]]] = {
    "guards-first": _guards_first,
    "no-ghost-needed": _no_ghost_needed,
    "writes-constrained": _writes_constrained,
    "one-return": _one_return,
    "no-recursion": _no_recursion,
    "no-aliasing": _no_aliasing,
    "few-parameters": _few_parameters,
    "stated-bounds": endless_quantifiers,
    "known-properties": _known_properties,
}
