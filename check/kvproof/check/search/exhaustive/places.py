"""A text in which each place is asked for before it is taken: searches run this one.

There is no cell for NONE, and none beyond the last name. Python counts a place below 0 from the end, so a wrong rule
that takes NONE for a place would read or write the cell of the last block or sequence. That is a name which it prefers,
and states that differ in names alone would not be alike. The C reader notes such a place (`c_reader.translation`). Here
it raises an IndexError, as one beyond the end does, and that refutes the rule. The same holds for a place or stop that
is not within its row. Judges run the text as it is: the proofs say that it takes no such place.
"""

import ast
from functools import cache, lru_cache

from kvproof.spec.native import Machine
from kvproof.spec.sizes import Sizes
from kvproof.spec.syntax_trees import Functions, copied, functions

IN_RANGE, WITHIN = "place_in_range", "place_within"


def in_range(place: int) -> int:
    """The place of a cell. Raises IndexError if it is below 0; a list refuses one beyond its end."""
    if place < 0:
        raise IndexError(f"there is no place {place}")
    return place


def within(first: int, place: int, last: int) -> int:
    """The place. Raises IndexError if it is not one from `first` to `last`."""
    if not first <= place <= last:
        raise IndexError(f"there is no place {place} between {first} and {last}")
    return place


def machine_for_searches(sizes: Sizes, *, with_ghosts: bool, text: Functions | None = None) -> Machine:
    """The machine of a search. text: other functions than those of the specification.

    Raises ValueError if the text has a name of what it asks with.
    """
    asking = _asking_by_default() if text is None else _asking(text)
    machine = Machine(sizes, with_ghosts, text=asking)
    machine.names.update({IN_RANGE: in_range, WITHIN: within})
    return machine


@cache
def _asking_by_default() -> Functions:
    return _asking(functions())


def _asking(text: Functions) -> Functions:
    return {name: (_asked(tree), file) for name, (tree, file) in text.items()}


@lru_cache(maxsize=4096)
def _asked(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function that asks. Kept, so that what two texts have in common is compiled once."""
    if {IN_RANGE, WITHIN} & {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}:
        raise ValueError(f"{function.name} has the name {IN_RANGE} or {WITHIN}, with which a search asks for a place")
    asked: ast.FunctionDef = _Asking(function).visit(copied(function))
    return ast.fix_missing_locations(asked)


class _Asking(ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef) -> None:
        loops = [node for node in ast.walk(function) if isinstance(node, ast.comprehension)]
        given = {argument.arg for argument in function.args.args}
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        given |= {name.id for name in names if all(name is not loop.target for loop in loops)}
        # Variables that take no other values than those of a domain.
        self.quantified = {loop.target.id for loop in loops if isinstance(loop.target, ast.Name)} - given

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        place = node.slice
        name = place.id if isinstance(place, ast.Name) else ""
        if isinstance(place, ast.Constant | ast.Slice) or name in self.quantified:
            return node
        asked = _call(IN_RANGE, place)
        if name:  # the call costs more than all else
            test = ast.Compare(place, [ast.GtE()], [ast.Constant(0)])
            asked = ast.IfExp(test, place, asked)
        node.slice = ast.copy_location(asked, place)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        zero, end = ast.Constant(0), ast.Name("BLOCK_SIZE", ast.Load())
        match node.func, node.args:
            case ast.Name("put"), [row, place, _]:
                length = _call("len", row)
                node.args[1] = _call(WITHIN, zero, place, ast.BinOp(length, ast.Sub(), ast.Constant(1)))
            case ast.Name("spliced"), [_, start, stop, _]:
                node.args[1:3] = _call(WITHIN, zero, start, end), _call(WITHIN, start, stop, end)
            case ast.Name("same"), [_, _, stop] if ast.unparse(stop) != "BLOCK_SIZE":
                node.args[2] = _call(WITHIN, zero, stop, end)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
