"""List comprehensions as loops, so that a proof can cut them where they ask for the next item.

Python keeps the list of a comprehension where nobody can see it. So `[f(x) for x in y]` becomes a call of a function
that appends to a list of its own, item by item; nothing else of the function changes. The source is compiled as it is
too, and must give the very code that the function has: otherwise the function keeps its code, and a proof refuses the
comprehension. Replays run the code as it is (`replay`), and tests compare the two.
"""

import ast
import dis
import linecache
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType

NEW_LIST = "a_new_list"  # the global that makes the list of a comprehension
LOOP = "as_a_loop"  # the name of the function in which it is a loop


def code_of(function: FunctionType) -> CodeType:
    """The code of the function, with loops for its list comprehensions."""
    code = function.__code__
    if not _collects(code):
        return code
    changed = _with_loops(code.co_filename, "".join(linecache.getlines(code.co_filename)))
    if changed is None:
        return code
    plain, others = changed
    found = others.get(_key(code))
    if found is None or plain.get(_key(code)) != code or found.co_freevars != code.co_freevars:
        return code
    return found


def _collects(code: CodeType) -> bool:
    """Whether the function has a list comprehension: code of its own, or, since Python 3.12, in place."""
    if any(isinstance(one, CodeType) and one.co_name == "<listcomp>" for one in code.co_consts):
        return True
    return any(one.opname == "LIST_APPEND" for one in dis.get_instructions(code))


Codes = dict[tuple[str, int], CodeType]  # by name and first line


@cache
def _with_loops(file: str, source: str) -> tuple[Codes, Codes] | None:
    """The code of each function of a source: as it is, and with loops. None if that cannot be."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    if not source or LOOP in source or NEW_LIST in source:
        return None
    loops = ast.parse(source)
    _Loops().visit(loops)  # changes it in place
    ast.fix_missing_locations(loops)
    return (
        dict(_codes(compile(tree, file, "exec", dont_inherit=True))),
        dict(_codes(compile(loops, file, "exec", dont_inherit=True))),
    )


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield _key(one), one
            yield from _codes(one)


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


class _Loops(ast.NodeTransformer):
    """Puts a function with a loop before each simple statement, for each list comprehension of one `for` in it."""

    def __init__(self) -> None:
        self._made: list[ast.stmt] = []

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        if len(node.generators) != 1 or node.generators[0].is_async or _binds(node):
            return node
        (part,) = node.generators
        append: ast.stmt = ast.Expr(ast.Call(ast.Attribute(_name("collected"), "append", ast.Load()), [node.elt], []))
        for condition in reversed(part.ifs):
            append = ast.If(condition, [append], [])
        loop = ast.For(part.target, _name("items"), [append], [])
        begin = ast.Assign([ast.Name("collected", ast.Store())], ast.Call(_name(NEW_LIST), [], []))
        arguments = ast.arguments([], [ast.arg("items")], None, [], [], None, [])
        body: list[ast.stmt] = [begin, loop, ast.Return(_name("collected"))]
        made = ast.FunctionDef(LOOP, arguments, body, [])
        for one in ast.walk(made):
            if isinstance(one, (ast.stmt, ast.expr, ast.arg)) and not hasattr(one, "lineno"):
                ast.copy_location(one, node)
        self._made.append(made)
        return ast.copy_location(ast.Call(_name(LOOP), [part.iter], []), node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node  # its names are not those of the statement around it

    def visit(self, node: ast.AST) -> object:
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)):
            return super().visit(node)
        before, self._made = self._made, []
        changed = self.generic_visit(node)
        made, self._made = self._made, before
        if len(made) != 1:  # of two comprehensions in one statement, neither is changed
            return changed if not made else node
        return [*made, changed]


def _binds(node: ast.ListComp) -> bool:
    """Whether it names what the loop names, assigns a name of the function around it, or has another within."""
    inner = (ast.NamedExpr, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.Await, ast.Yield)
    (part,) = node.generators
    within = [one for root in (node.elt, part.target, *part.ifs) for one in ast.walk(root)]
    names = {one.id for one in within if isinstance(one, ast.Name)}
    others = [one for one in ast.walk(node) if one is not node]
    return bool(names & {"collected", "items"}) or any(isinstance(one, inner) for one in others)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())
