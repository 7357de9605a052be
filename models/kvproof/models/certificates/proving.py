"""Ask cvc5 for a proof that a question is unsatisfiable, in its calculus CPC, which the checker ethos knows.

The strategies of the second solver are tried in turn until one gives a proof whose every step is justified. All limits
are efforts, so the answer does not depend on the load of the machine. Two options differ from the second solver's:

- `fresh-binders` is off. It renames bound variables, and the assumptions of a proof must be those of the question.
- `quant-alpha-equiv` is off. It renames a variable to one that occurs already, in steps that the checker rejects.

The text of a question is the same in every run. `Obligation.question` prints formulas where they are: what Z3
abbreviates with `let`, and under which names, depends on everything else in the process. Here each formula is printed
in a context of its own, and the abbreviations are numbered in their order. So a text, and its hash, tells whether a
certificate from an earlier run is about the same obligation.
"""

import re
import time
from dataclasses import dataclass, field
from importlib import import_module

import z3

from kvproof.models.obligation import Obligation, joined
from kvproof.models.proofs.instances import where_denied, where_next_fired
from kvproof.models.solvers.second_solver import ALWAYS, NAME, STRATEGIES, effort_of, run_script
from kvproof.models.solvers.solving import VERDICTS, Answer, Settings
from kvproof.spec.verdict import Verdict

OPTIONS = ALWAYS | {
    "fresh-binders": "false",
    "quant-alpha-equiv": "false",
    "produce-proofs": "true",
    "proof-format-mode": "cpc",
    "proof-granularity": "dsl-rewrite",
}
UNSOUND_RULE = re.compile(r":rule ((?:trust|hole)\w*)")  # CPC's steps without a justification

ABBREVIATION = re.compile(r"[$?]x\d+")  # as Z3 names what it abbreviates
DECLARES, ASSERTS = "(declare-", "(assert"


@dataclass(frozen=True)
class CertifiedAnswer(Answer):
    """An answer with its proof.

    proof: the commands of the proof, a line each; empty if there is none. options: the solver's options. trusted_steps:
    rules of steps that the proof does not justify, each once; then it is no complete proof, and the verdict is unknown.
    """

    proof: str = ""
    options: dict[str, str] = field(default_factory=dict)
    trusted_steps: tuple[str, ...] = ()


def ask(assumed: str, goal: str, settings: Settings) -> CertifiedAnswer:
    """Ask cvc5 for a proof; the last answer if no strategy gives a complete one."""
    text = joined(assumed, goal)
    began, effort, found = time.perf_counter(), 0, CertifiedAnswer(Verdict.UNKNOWN)
    for strategy in STRATEGIES:
        options = OPTIONS | {"seed": str(settings.seed)} | strategy
        solver, answer, reason = run_script(text, options)
        effort += effort_of(solver)
        verdict, proof = VERDICTS[answer], ""
        if verdict is Verdict.PROVED:
            cvc5 = import_module(NAME)
            proof = _commands(solver.proofToString(solver.getProof(cvc5.ProofComponent.FULL)[0], cvc5.ProofFormat.CPC))
        trusted = unsound_rules(proof)
        if trusted:
            verdict, reason = Verdict.UNKNOWN, f"cvc5's proof has steps without a justification: {', '.join(trusted)}"
        seconds = time.perf_counter() - began
        if proof or not found.proof:  # a proof with a gap tells more than none
            found = CertifiedAnswer(verdict, seconds, effort, reason, None, proof, options, trusted)
        if verdict is not Verdict.UNKNOWN:
            break
    return found


def unsound_rules(proof: str) -> tuple[str, ...]:
    """The rules of a proof's steps that need no justification, each once."""
    return tuple(dict.fromkeys(UNSOUND_RULE.findall(proof)))


def _commands(printed: str | bytes) -> str:
    """The proof without the parentheses around it, which the checker does not read."""
    text = printed.decode() if isinstance(printed, bytes) else printed
    inner = text.strip().removeprefix("(").removesuffix(")").strip()
    return f"{inner}\n"


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
