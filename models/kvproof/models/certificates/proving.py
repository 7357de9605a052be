"""Ask cvc5 for a proof that a question is unsatisfiable, in its calculus CPC, which the checker ethos knows.

The strategies of the second solver are tried in turn until one gives a proof whose every step is justified. All limits
are efforts, so the answer does not depend on the load of the machine. Two options differ from the second solver's:

- `fresh-binders` is off. It renames bound variables, and the assumptions of a proof must be those of the question.
- `quant-alpha-equiv` is off. It renames a variable to one that occurs already, in steps that the checker rejects.
"""

import re
import time
from dataclasses import dataclass, field
from importlib import import_module

from kvproof.models.obligation import joined
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
