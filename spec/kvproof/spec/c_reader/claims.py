"""The claims in C, evaluated together: claims that begin with the same loops and conditions share them.

Most claims say something of all sequences and blocks, or of all pairs of sequences that hold a block. Each claim is a
path of loops and conditions with a test at its end; the paths are merged where they are equal. `claims_hold` only says
whether every claim holds: it asks them in another order than the text. So where one does not, or reads beyond a field,
the answer comes from asking one claim after the other.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kvproof.spec.compilation import ask_early

Step = ast.comprehension | ast.expr
Merged = dict[str, tuple[Step, "Merged"]]  # by the text of a step: the step, and what comes after it


@dataclass(frozen=True)
class InC:
    """How an expression is written in C, and a loop with its body."""

    number: Callable[[ast.expr], str]
    loop: Callable[[ast.comprehension, str], str]


def claims_hold(claims: Mapping[str, ast.FunctionDef], in_c: InC, suffix: str = "") -> str:
    """The source of `claims_hold`, and of `broken_claim`: the number of the first claim that does not hold, or 0.

    suffix: of the names of both.
    """
    merged: Merged = {}
    for claim in claims.values():
        found = merged
        for step in _path(claim):
            _, found = found.setdefault(ast.unparse(step), (step, {}))
    lines = [f"static int claims_hold{suffix}(const cell *v_state) {{", _source(merged, in_c), "  return 1;", "}"]
    lines += [f"static int broken_claim{suffix}(const cell *v_state) {{", "  int range = out_of_range;"]
    lines += [f"  if (!range && claims_hold{suffix}(v_state) && !out_of_range) return 0;", "  out_of_range = range;"]
    lines += [f"  if (!f_{name}(v_state)) return {n};" for n, name in enumerate(claims, start=1)]
    return "\n".join([*lines, "  return 0;", "}"])


def _path(claim: ast.FunctionDef) -> list[Step]:
    """The loops and conditions of a claim, and its test."""
    *before, returned = claim.body
    assert isinstance(returned, ast.Return), f"{claim.name} does not end with its value"
    assert returned.value is not None
    assert len(before) <= 1, f"{claim.name} has statements that are not part of its value"  # one is its docstring
    value = ast.parse(ast.unparse(returned.value), mode="eval").body  # a copy: its conditions are moved
    match value:
        case ast.Call(ast.Name("all"), [ast.GeneratorExp() as every]):
            ask_early(every)
            path: list[Step] = []
            for loop in every.generators:
                is_one = isinstance(loop.iter, ast.Tuple)  # then the first condition belongs to the loop
                path.append(ast.comprehension(loop.target, loop.iter, loop.ifs[:is_one], 0))
                path += loop.ifs[is_one:]
            return [*path, every.elt]
    return [value]


def _source(merged: Merged, in_c: InC) -> str:
    parts = []
    for step, after in merged.values():
        if isinstance(step, ast.comprehension):
            parts.append(in_c.loop(step, _source(after, in_c)))
        elif after:
            parts.append(f"if ({in_c.number(step)}) {{ {_source(after, in_c)} }}")
        else:
            parts.append(f"if (!{in_c.number(step)}) return 0;")
    return "\n".join(parts)
