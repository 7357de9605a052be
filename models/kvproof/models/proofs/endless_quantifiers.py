"""Where a quantifier over a domain without end means the same natively and when proved.

`INDEXES`, `RANKS` and `STEPS` have no end when proved. A native run has `NUM_INDEXES` table entries, and so on, and its
quantifiers end there. So for `all` and `any` over such a domain there are two cases:

- A claim (invariant, theorem, check, or function of a contract) may say `all`, where nothing negates it: what holds
  for all numbers holds for those of the native run.
- Everywhere else (guards, conditions, values that are written, `any`, and what is negated, compared or a condition of
  `implies`) the quantifier states a bound: `all(implies(i < state.num_blocks[s] and …, …) for i in INDEXES)`, or
  `any(i < state.num_blocks[s] and …)`. The bound is a field of `LENGTHS`, which counts what a native run stores. So it
  is at most the size of the native domain, and further numbers change neither `all` nor `any`. The cross-check of the
  specification compares these fields with the sizes in every state that it reaches.

Preconditions and choices of contracts are assumed of all numbers. The rows that they read are parameters, which a
native run gives as lists. Beyond the end of a list its values are free, so the proof may choose them.
"""

import ast
from collections.abc import Iterator

from kvproof.models.proofs.lint_error import LintError
from kvproof.models.translation.sizes import WITHOUT_END
from kvproof.models.translation.text import Text, parameters_of, place_of, returned
from kvproof.spec import syntax_trees
from kvproof.spec.language import Domain
from kvproof.spec.syntax_trees import called

LENGTHS = {  # field -> the size that its values never exceed natively
    "num_blocks": "NUM_INDEXES",  # each entry of a table is written when it is added
    "first": "NUM_INDEXES",  # an entry that a window has left: at most num_blocks
    "refcount": "NUM_RANKS",  # the holders of a block are different sequences
    "pins": "NUM_RANKS",  # the pins of a block are different flights
    "reads": "NUM_RANKS",  # the readers of a block of a store are different pins
    "count": "NUM_RANKS",  # the members of a set are different blocks
}


def endless_quantifiers(text: Text) -> Iterator[LintError]:
    """The quantifiers whose native reading may differ from the proved one."""
    search, collected = _Search(text), text.system.collected
    for marked in (*collected.rules, *collected.steps):
        function, file = text.functions[marked.__name__]
        for node in function.body:
            yield from search.statement(node, function, file)
    for name in [claim.name for claim in (*collected.invariants, *collected.theorems)]:
        yield from search.function(name, decides=False)
    for field in text.system.fields.values():
        if callable(field.start):
            yield from search.function(field.start.__name__, decides=True)
    for marked in collected.functions:  # judges and rules decide by the functions of the text
        yield from search.function(marked.__name__, decides=marked.__name__ in syntax_trees.functions(text.system))


class _Search:
    """Searches each function once for each way in which its value is used."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.searched: set[tuple[str, bool]] = set()
        self.found: set[str] = set()  # the places of findings

    def statement(self, node: ast.stmt, function: ast.FunctionDef, file: str) -> Iterator[LintError]:
        """The findings in a statement of a rule or step. Its checks are claims; everything else decides."""
        if called(node) == "check" and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from self.expression(node.value.args[0], function, file, decides=False)
            return
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from self.statement(child, function, file)
            elif isinstance(child, ast.expr):
                yield from self.expression(child, function, file, decides=True)

    def function(self, name: str, decides: bool) -> Iterator[LintError]:
        """The findings in a predicate or function that is called."""
        if (name, decides) in self.searched or name not in self.text.functions:
            return
        self.searched.add((name, decides))
        function, file = self.text.functions[name]
        if (result := returned(function)) is not None:  # steps are searched as rules are
            yield from self.expression(result, function, file, decides)

    def expression(self, node: ast.AST, function: ast.FunctionDef, file: str, decides: bool) -> Iterator[LintError]:
        """The findings in an expression. decides: more than the truth of a claim depends on it."""
        operands = list(ast.iter_child_nodes(node))
        keeping: list[ast.AST] = []  # the operands whose truth can only help that of the whole
        match node:
            case ast.BoolOp():
                keeping = operands
            case ast.IfExp():
                keeping = [node.body, node.orelse]
            case ast.Call(func=ast.Name(id="implies"), args=[_, conclusion]):
                keeping = [conclusion]
            case ast.Call(func=ast.Name(id="all" | "any" as name), args=[ast.GeneratorExp() as generator]):
                if name == "any" or decides:
                    yield from self._unbounded(name, generator, function, file)
                keeping = [generator.elt]
                operands = [generator.elt]
            case ast.Call(func=ast.Name(id=name)):
                yield from self.function(name, decides)
        for operand in operands:
            is_kept = any(operand is one for one in keeping)
            yield from self.expression(operand, function, file, decides or not is_kept)

    def _unbounded(
        self, name: str, node: ast.GeneratorExp, function: ast.FunctionDef, file: str
    ) -> Iterator[LintError]:
        variables = [ast.unparse(generator.target) for generator in node.generators]
        for variable, generator in zip(variables, node.generators, strict=True):
            size, place = self._size(generator), place_of(file, node)
            if size is None or place in self.found:
                continue
            is_bounded = self._is_bounded(name, node.elt, variable, size, function)
            if not is_bounded or variables.count(variable) > 1:
                self.found.add(place)
                fields = self.text.system.fields
                lengths = sorted(field for field, one in LENGTHS.items() if one == size and field in fields)
                what = f"{name} over {ast.unparse(generator.iter)} ends natively at {size}, and never when proved"
                instead = f"bound {variable} by a length of the state ({', '.join(lengths) or 'there is none'})"
                yield LintError(place, f"{what}; {instead}: {ast.unparse(node)[:120]}")

    def _size(self, generator: ast.comprehension) -> str | None:
        domain = self.text.constants.get(generator.iter.id) if isinstance(generator.iter, ast.Name) else None
        return str(domain.size) if isinstance(domain, Domain) and domain.size in WITHOUT_END else None

    def _is_bounded(self, name: str, node: ast.expr, variable: str, size: str, function: ast.FunctionDef) -> bool:
        """Whether further values of the variable change neither `all` nor `any` of the expression."""
        match node:
            case ast.BoolOp(op=ast.And()) if name == "all":
                return all(self._is_bounded(name, part, variable, size, function) for part in node.values)
            case ast.Call(func=ast.Name(id="implies"), args=[condition, _]) if name == "all":
                return self._is_below(condition, variable, size, (function,))
        return name == "any" and self._is_below(node, variable, size, (function,))

    def _is_below(self, node: ast.expr, variable: str, size: str, chain: tuple[ast.FunctionDef, ...]) -> bool:
        """Whether a condition holds only of values below a length. chain: the functions that lead to the condition."""
        match node:
            case ast.BoolOp(op=ast.And()):
                return any(self._is_below(part, variable, size, chain) for part in node.values)
            case ast.Compare():
                sides = [node.left, *node.comparators]
                pairs = list(zip(sides, node.ops, sides[1:], strict=False))
                below = [(one, other) for one, operator, other in pairs if isinstance(operator, ast.Lt)]
                below += [(other, one) for one, operator, other in pairs if isinstance(operator, ast.Gt)]
                return any(_is_name(less, variable) and self._is_length(more, size, chain[-1]) for less, more in below)
            case ast.Call(func=ast.Name(id=name)) if name in self.text.functions:
                callee, file = self.text.functions[name]
                result = returned(callee)
                if result is None or callee in chain:
                    return False
                given = zip(parameters_of(callee, file), node.args, strict=False)
                inner = [parameter for parameter, argument in given if _is_name(argument, variable)]
                return any(self._is_below(result, one, size, (*chain, callee)) for one in inner)
        return False

    def _is_length(self, node: ast.expr, size: str, function: ast.FunctionDef) -> bool:
        """Whether an expression reads one of the lengths of a state."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Attribute) or LENGTHS.get(node.attr) != size:
            return False
        states = [
            one.arg
            for one in function.args.args
            if one.annotation and ast.unparse(one.annotation) == self.text.system.state.__name__
        ]
        return isinstance(node.value, ast.Name) and node.value.id in states


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
