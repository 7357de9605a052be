"""The text of a question, the same in every run.

`Obligation.question` prints formulas where they are: what Z3 abbreviates with `let`, and under which names, depends on
everything else in the process. Here each formula is printed in a context of its own, and the abbreviations are numbered
in their order. So a text, and its hash, tells whether a certificate from an earlier run is about the same obligation.
"""

import re

import z3

from kvproof.models.obligation import Obligation, joined
from kvproof.models.proofs.instances import where_denied, where_next_fired

ABBREVIATION = re.compile(r"[$?]x\d+")  # as Z3 names what it abbreviates
DECLARES, ASSERTS = "(declare-", "(assert"


class Questions:
    """Prints questions. Many obligations share hypotheses; each hypothesis is printed once."""

    def __init__(self) -> None:
        self._printed: dict[int, tuple[z3.BoolRef, str]] = {}  # keeps formulas alive, so that no id is used twice

    def of(self, obligation: Obligation) -> tuple[str, str]:
        """The hypotheses and the negated goal, like `Obligation.question`."""
        assumed: dict[str, None] = {}  # a set in order: a symbol is declared once, a hypothesis is asserted once
        for one in obligation.hypotheses:
            key = one.formula.get_id()
            if key not in self._printed:
                self._printed[key] = one.formula, _printed(one.formula)
            declarations, _, assertion = self._printed[key][1].rpartition(ASSERTS)
            assumed.update(dict.fromkeys([*declarations.splitlines(), ASSERTS + assertion]))
        return "\n".join(assumed), _printed(obligation.negated_goal())

    def text(self, obligation: Obligation) -> str:
        """The question as an SMT-LIB script."""
        return joined(*self.of(obligation))


def with_instances(obligation: Obligation) -> Obligation:
    """The obligation with instances of its hypotheses that cvc5 may not find itself; one holds if the other does."""
    return where_next_fired(where_denied(obligation))


def instances(obligation: Obligation) -> list[str]:
    """The names of the hypotheses that `with_instances` adds."""
    known = {one.name for one in obligation.hypotheses}
    return [one.name for one in with_instances(obligation).hypotheses if one.name not in known]


def _printed(formula: z3.BoolRef) -> str:
    """The declarations of the formula, a line each, and one assertion."""
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.add(formula.translate(context))
    text = solver.to_smt2()
    declarations = [line for line in text.splitlines() if line.startswith(DECLARES)]
    if ASSERTS not in text:  # Z3 does not print that true is asserted
        return f"{ASSERTS} true)"
    assertion = text[text.index(ASSERTS) : text.rindex("(check-sat)")].strip()
    names: dict[str, str] = {}
    renamed = ABBREVIATION.sub(lambda found: names.setdefault(found[0], f"{found[0][0]}x{len(names)}"), assertion)
    return "\n".join([*declarations, renamed])
