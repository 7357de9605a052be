"""Digests of formulas: short texts that are equal for formulas of equal structure, in every process.

Z3's own hash has 32 bits and does not tell the two quantifiers apart, and the SMT-LIB text of all goals has 16 MB. So a
digest is computed over the graph of terms, each of which is read once. It covers operators, names, sorts, numbers and
the order of arguments. It leaves out what means nothing: the names of bound variables, and the order of conjuncts and
disjuncts, which a solver's answers may determine (paths are explored in the order of its models).
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import z3

NUM_BYTES = 4  # of a digest that is shown: a change is missed once in four billion times
NUM_BYTES_INSIDE = 16


class Digests:
    """Computes digests; remembers those of all terms that it has read."""

    def __init__(self) -> None:
        self._of_term: dict[int, bytes] = {}
        self._of_function: dict[int, tuple[bytes, bool]] = {}  # and whether the order of its arguments means something
        self._kept: list[z3.AstRef] = []  # keeps what was read alive, so that no id is used twice

    def of(self, formulas: Iterable[z3.ExprRef | bool], *words: str) -> str:
        """The digest of a set of formulas, and of some words that belong to it, in hexadecimal digits."""
        inside = {str(one).encode() if isinstance(one, bool) else self._term(one) for one in formulas}
        return _digest([*sorted(inside), *(word.encode() for word in words)], NUM_BYTES).hex()

    def _term(self, root: z3.ExprRef) -> bytes:
        """The digest of a term. Its parts are read by Z3's own functions: an object of Python for each takes longer."""
        if root.get_id() in self._of_term:
            return self._of_term[root.get_id()]
        self._kept.append(root)
        left = [(root.ast, _parts(root.ast, root.ctx))]
        while left:
            term, parts = left[-1]
            if unread := [(part, _parts(part, root.ctx)) for number, part in parts if number not in self._of_term]:
                left += unread
                continue
            left.pop()
            inside = [self._of_term[number] for number, _ in parts]
            head, has_order = self._head(term, root.ctx)
            if not has_order:
                inside.sort()
            self._of_term[z3.Z3_get_ast_id(root.ctx_ref(), term)] = _digest([head, *inside], NUM_BYTES_INSIDE)
        return self._of_term[root.get_id()]

    def _head(self, term: Any, context: z3.Context) -> tuple[bytes, bool]:
        """What a term is, apart from its parts; and whether their order means something."""
        if z3.Z3_get_ast_kind(context.ref(), term) == z3.Z3_QUANTIFIER_AST:
            return _quantifier(z3.QuantifierRef(term, context)), True
        if z3.Z3_get_ast_kind(context.ref(), term) != z3.Z3_APP_AST or not z3.Z3_get_app_num_args(context.ref(), term):
            leaf = z3.ExprRef(term, context)
            return f"{leaf.sexpr()} of {leaf.sort()}".encode(), True
        number = z3.Z3_get_ast_id(context.ref(), z3.Z3_get_app_decl(context.ref(), term))
        if number not in self._of_function:
            function = z3.ExprRef(term, context).decl()
            self._kept.append(function)
            has_order = function.kind() not in (z3.Z3_OP_AND, z3.Z3_OP_OR)
            self._of_function[number] = function.sexpr().encode(), has_order
        return self._of_function[number]


def _quantifier(term: z3.QuantifierRef) -> bytes:
    kind = "forall" if term.is_forall() else "exists" if term.is_exists() else "lambda"
    return f"{kind} {[str(term.var_sort(place)) for place in range(term.num_vars())]}".encode()


def _parts(term: Any, of: z3.Context) -> list[tuple[int, Any]]:
    """The arguments of a term, or the body of a quantifier, each with its id. The term keeps them alive."""
    context = of.ref()
    kind = z3.Z3_get_ast_kind(context, term)
    if kind == z3.Z3_QUANTIFIER_AST:
        parts = [z3.Z3_get_quantifier_body(context, term)]
    elif kind == z3.Z3_APP_AST:
        parts = [z3.Z3_get_app_arg(context, term, place) for place in range(z3.Z3_get_app_num_args(context, term))]
    else:
        parts = []  # a variable or a numeral
    return [(z3.Z3_get_ast_id(context, part), part) for part in parts]


def _digest(parts: Iterable[bytes], num_bytes: int) -> bytes:
    found = hashlib.blake2b(digest_size=num_bytes)
    for part in parts:
        found.update(len(part).to_bytes(4, "big") + part)
    return found.digest()
