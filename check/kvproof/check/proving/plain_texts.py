"""Whether the code of texts outside of functions is plain: it runs no function of a text, and reads the body of none.

What plain code defines, such as constants, fields and contracts, depends on that code alone, so the digest of
everything else needs no body of a function. Only these forms are plain; any other form may run a function in a way that
nobody sees in the syntax tree (`globals()`, an attribute of a module, an operator of a class, a default that is read):

- imports, by name and without a new name, from other texts, the language, the domains of stores and `dataclasses`;
- constants, names, tuples and lists of them, arithmetic with them, and the calls in `CALLS`;
- classes without bases that have annotated fields only, and functions with annotations that are names or lists.

The name of a function of any text stands only in `CALLS`. These read its head and its docstring, which is the sentence
of a claim or contract, or keep the function. The language and the domains import no text.
"""

import ast
from collections.abc import Iterator, Mapping

SPEC = "kvproof.spec"
IMPORTED = (f"{SPEC}.language", f"{SPEC}.store.domains", "dataclasses")
CALLS = ("real", "derived", "ghost", "least", "contract", "invariant", "theorem")
MARKS = ("predicate", "function", "step", "rule")
RESERVED = {*CALLS, *MARKS, "dataclass", "list"}  # only an import may bind these names


def are_plain(texts: Mapping[str, ast.Module]) -> bool:
    """Whether all code outside of functions is plain. texts: by the name of the file, within the specification."""
    modules = {f"{SPEC}.{name.removesuffix('.py').replace('/', '.')}" for name in texts}
    bodies = [node for text in texts.values() for node in text.body]
    functions = {node.name for node in bodies if isinstance(node, ast.FunctionDef)}
    reader = _Reader(modules.union(IMPORTED), functions)
    return all(reader.is_plain(node) for node in bodies)


class _Reader:
    """Reads code outside of functions. functions: the names of those of all texts."""

    def __init__(self, modules: set[str], functions: set[str]) -> None:
        self.modules, self.functions = modules, functions

    def is_plain(self, node: ast.stmt) -> bool:
        """Whether a statement of a text is plain."""
        if any(_is_special(name) or name in RESERVED for name in _bound(node)) or getattr(node, "type_params", None):
            return False
        match node:
            case ast.ImportFrom(module, names, 0):
                return module in self.modules and not any(
                    one.asname or one.name == "*" or _is_special(one.name) for one in names
                )
            case ast.Expr(value):
                return self.is_value(value)
            case ast.Assign(targets, value):
                return all(map(_is_of_names, targets)) and self.is_value(value)
            case ast.AnnAssign():
                return self.is_field(node)
            case ast.FunctionDef(args=args, decorator_list=marks, returns=returns):
                return all(map(self.is_mark, marks)) and self.are_parameters(args) and self.is_type(returns)
            case ast.ClassDef(bases=[], keywords=[], decorator_list=marks, body=body):
                return all(map(self.is_mark, marks)) and all(map(self.is_field, body))
        return False

    def is_field(self, node: ast.stmt) -> bool:
        """Whether a statement of a class is a field with a plain value, or a docstring."""
        match node:
            case ast.AnnAssign(ast.Name(), annotation, value):
                return self.is_type(annotation) and (value is None or self.is_value(value))
            case ast.Expr(ast.Constant()):
                return True
        return False

    def is_mark(self, node: ast.expr) -> bool:
        """Whether a decorator is one of the language, or makes a record of a class."""
        match node:
            case ast.Name(name):
                return name in MARKS
            case ast.Call(ast.Name("dataclass"), [], keywords):
                return all(one.arg and isinstance(one.value, ast.Constant) for one in keywords)
        return isinstance(node, ast.Call) and self.is_value(node)

    def are_parameters(self, args: ast.arguments) -> bool:
        """Whether the types and defaults of parameters are plain."""
        every = (*args.posonlyargs, *args.args, *args.kwonlyargs)
        defaults = (*args.defaults, *(one for one in args.kw_defaults if one is not None))
        return (
            args.vararg is None
            and args.kwarg is None
            and all(self.is_type(one.annotation) for one in every)
            and all(map(self.is_value, defaults))
        )

    def is_type(self, node: ast.expr | None) -> bool:
        """Whether an annotation is plain. A text in quotes is not: who evaluates it runs it."""
        match node:
            case None | ast.Constant(None):
                return True
            case ast.Name(name):
                return self.is_name(name)
            case ast.Subscript(ast.Name("list"), inner):
                return self.is_type(inner)
        return False

    def is_value(self, node: ast.expr, takes_functions: bool = False) -> bool:
        """Whether an expression is plain. takes_functions: whether a name of a function is, as in one of `CALLS`."""
        match node:
            case ast.Constant():
                return True
            case ast.Name(name):
                return self.is_name(name, takes_functions)
            case ast.Tuple(elements) | ast.List(elements):
                return all(self.is_value(one, takes_functions) for one in elements)
            case ast.UnaryOp(_, operand):
                return self.is_value(operand)
            case ast.BinOp(left, _, right):
                return self.is_value(left) and self.is_value(right)
            case ast.Dict(keys, values) if takes_functions:
                return all(one is not None and self.is_value(one, takes_functions) for one in (*keys, *values))
            case ast.Call(ast.Name(name), args, keywords) if name in CALLS:
                given = (*args, *(one.value for one in keywords))
                return all(one.arg for one in keywords) and all(self.is_value(one, True) for one in given)
        return False

    def is_name(self, name: str, takes_functions: bool = False) -> bool:
        """Whether a name that is read is plain."""
        return not _is_special(name) and (takes_functions or name not in self.functions)


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement binds outside of functions, but by imports."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    if not isinstance(node, ast.FunctionDef):
        yield from (one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def _is_of_names(target: ast.expr) -> bool:
    """Whether an assignment to the target binds names, and writes into nothing that is there already."""
    match target:
        case ast.Tuple(elements):
            return all(map(_is_of_names, elements))
    return isinstance(target, ast.Name)


def _is_special(name: str) -> bool:
    """Whether Python gives a name a meaning of its own, as to `__doc__` and a module's `__getattr__`."""
    return name.startswith("__")
