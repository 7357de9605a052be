"""Digests of formulas: short texts that are equal for formulas of equal structure, in every process.

Z3's own hash has 32 bits and does not tell the two quantifiers apart, and the SMT-LIB text of all goals has 16 MB. So a
digest is computed over the graph of terms, each of which is read once. It covers operators, names, sorts, numbers and
the order of arguments. It leaves out what means nothing: the names of bound variables, and the order of conjuncts and
disjuncts, which a solver's answers may determine (paths are explored in the order of its models).
"""

import hashlib
from collections.abc import Iterable

import z3

NUM_BYTES = 4  # of a digest that is shown: a change is missed once in four billion times
NUM_BYTES_INSIDE = 16


class Digests:
    """Computes digests; remembers those of all terms that it has read."""

    def __init__(self) -> None:
        self._of_term: dict[int, bytes] = {}
        self._of_function: dict[int, bytes] = {}
        self._kept: list[z3.AstRef] = []  # keeps what was read alive, so that no id is used twice

    def of(self, formulas: Iterable[z3.ExprRef | bool], *words: str) -> str:
        """The digest of a set of formulas, and of some words that belong to it, in hexadecimal digits."""
        inside = {str(one).encode() if isinstance(one, bool) else self._term(one) for one in formulas}
        return _digest([*sorted(inside), *(word.encode() for word in words)], NUM_BYTES).hex()

    def _term(self, root: z3.ExprRef) -> bytes:
        if root.get_id() in self._of_term:
            return self._of_term[root.get_id()]
        self._kept.append(root)
        left = [(root, _parts(root))]
        while left:
            term, parts = left[-1]
            if unread := [(part, _parts(part)) for number, part in parts if number not in self._of_term]:
                left += unread
                continue
            left.pop()
            inside = [self._of_term[number] for number, _ in parts]
            if z3.is_and(term) or z3.is_or(term):
                inside.sort()
            self._of_term[term.get_id()] = _digest([self._head(term, bool(parts)), *inside], NUM_BYTES_INSIDE)
        return self._of_term[root.get_id()]

    def _head(self, term: z3.ExprRef, has_parts: bool) -> bytes:
        """What a term is, apart from its parts: a quantifier, a function, or else a variable or constant."""
        if isinstance(term, z3.QuantifierRef):
            kind = "forall" if term.is_forall() else "exists" if term.is_exists() else "lambda"
            return f"{kind} {[str(term.var_sort(place)) for place in range(term.num_vars())]}".encode()
        if not has_parts:
            return f"{term.sexpr()} of {term.sort()}".encode()
        function = term.decl()
        if function.get_id() not in self._of_function:
            self._kept.append(function)
            self._of_function[function.get_id()] = function.sexpr().encode()
        return self._of_function[function.get_id()]


def _parts(term: z3.ExprRef) -> list[tuple[int, z3.ExprRef]]:
    """The arguments of a term, or the body of a quantifier, each with its id."""
    parts = [term.body()] if isinstance(term, z3.QuantifierRef) else term.children()
    return [(part.get_id(), part) for part in parts]


def _digest(parts: Iterable[bytes], num_bytes: int) -> bytes:
    found = hashlib.blake2b(digest_size=num_bytes)
    for part in parts:
        found.update(len(part).to_bytes(4, "big") + part)
    return found.digest()
