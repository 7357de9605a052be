"""No real field depends on a ghost field, so that a native run may leave the ghosts out without any other change.

A value is *tainted* if a ghost field was read for it, or if a branch on a tainted condition assigned it. A tainted
value may be written to a ghost field, or used in a `check`. It must not decide a guard, a write to another field, an
index of such a write or an argument that reaches one. Steps are followed from each call, with its arguments.
"""

import ast
from collections.abc import Iterator

from kvproof.models.proofs.lint_error import LintError
from kvproof.models.translation.dependencies import fields_read, reached
from kvproof.models.translation.text import Text, parameters_of, place_of, returned
from kvproof.spec.syntax_trees import called, target_of, without_ghosts

Names = dict[str, bool]  # local name -> whether it is tainted


def ghost_findings(text: Text, name: str) -> list[LintError]:
    """The places at which a real field or a guard of a rule depends on a ghost field."""
    function, file = text.functions[name]
    names = dict.fromkeys(parameters_of(function, file), False)
    found = list(_Flow(text).block(function.body, names, file, is_tainted=False))
    return found or [one for callee in reached(text, name) for one in _left_behind(text, callee)]


def _left_behind(text: Text, name: str) -> Iterator[LintError]:
    """The statements that a native run without ghosts keeps, although they read one: it would stop there."""
    function, file = text.functions[name]
    ghosts_of_text = text.system.ghosts
    if returned(function) is not None:  # predicates and functions are read where they are called
        return
    for node in ast.walk(without_ghosts(function, ghosts_of_text)):
        match node:
            case ast.Attribute():
                fields = frozenset({node.attr})
            case ast.Call(func=ast.Name(id=callee)) if callee in text.functions:
                is_step = returned(text.functions[callee][0]) is None
                fields = frozenset() if is_step else fields_read(text, callee)
            case _:
                continue
        if ghosts := sorted(fields & ghosts_of_text):
            what = f"{ghosts[0]} is read where a native run without ghosts needs it: {ast.unparse(node)}"
            yield LintError(place_of(file, node), f"{what}; read it in the statement that writes a ghost")


class _Flow:
    def __init__(self, text: Text) -> None:
        self.text, self.ghosts = text, text.system.ghosts
        self.followed: list[str] = []  # the steps that lead here; recursion is found by another lint

    def block(self, body: list[ast.stmt], names: Names, file: str, is_tainted: bool) -> Iterator[LintError]:
        """Follow the statements, and update `names`. is_tainted: whether the branch that they are in is tainted."""
        for node in body:
            yield from self._statement(node, names, file, is_tainted)

    def _statement(self, node: ast.stmt, names: Names, file: str, is_tainted: bool) -> Iterator[LintError]:
        place = place_of(file, node)
        target, is_field = target_of(node)
        callee = called(node)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and target is not None:
            depends = is_tainted or self._reads_ghost(node.value, names)
            if not is_field:
                names[target] = depends or (isinstance(node, ast.AugAssign) and names.get(target, False))
            elif target not in self.ghosts and (depends or self._index_reads_ghost(node, names)):
                yield LintError(place, f"{target} is written depending on a ghost field: {ast.unparse(node)}")
        elif isinstance(node, ast.If):
            inside = is_tainted or self._reads_ghost(node.test, names)
            yes, no = dict(names), dict(names)
            yield from self.block(node.body, yes, file, inside)
            yield from self.block(node.orelse, no, file, inside)
            names.update({name: yes.get(name, False) or no.get(name, False) for name in yes.keys() | no.keys()})
        elif callee == "require" and isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if is_tainted or self._reads_ghost(node.value.args[0], names):
                yield LintError(place, f"a guard depends on a ghost field: {ast.unparse(node.value.args[0])}")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and callee in self.text.functions:
            function, inner_file = self.text.functions[str(callee)]
            inner = self._given(parameters_of(function, inner_file), node.value, names)
            if function.name not in self.followed:
                self.followed.append(function.name)
                yield from self.block(function.body, inner, inner_file, is_tainted)
                self.followed.pop()

    def _given(self, parameters: list[str], call: ast.Call, names: Names) -> Names:
        """The parameters of a step that is called, each with whether its argument is tainted.

        A call that does not give one argument for each parameter in order is outside the language, and the translator
        refuses it with its place. Here any of its arguments may then reach any parameter.
        """
        given = [self._reads_ghost(argument, names) for argument in call.args]
        if len(given) == len(parameters) and not call.keywords and not any(map(_is_starred, call.args)):
            return dict(zip(parameters, given, strict=True))
        others = (self._reads_ghost(keyword.value, names) for keyword in call.keywords)
        return dict.fromkeys(parameters, any((*given, *others)))

    def _reads_ghost(self, node: ast.expr, names: Names) -> bool:
        """Whether the value depends on a ghost field: directly, by a local name, or by a function that it calls."""
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr in self.ghosts:
                return True
            if isinstance(part, ast.Name) and names.get(part.id, False):
                return True
            is_word = isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
            if is_word and part.func.id in self.text.functions and fields_read(self.text, part.func.id) & self.ghosts:  # type: ignore[attr-defined]
                return True
        return False

    def _index_reads_ghost(self, node: ast.Assign | ast.AugAssign, names: Names) -> bool:
        target = node.target if isinstance(node, ast.AugAssign) else node.targets[0]
        while isinstance(target, ast.Subscript):
            if self._reads_ghost(target.slice, names):
                return True
            target = target.value
        return False


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)
