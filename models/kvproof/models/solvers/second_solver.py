"""Ask cvc5, a solver that shares no code with Z3: a proof that both give does not rest on an error in one of them.

cvc5 gets the same question as SMT-LIB text. Three strategies are tried in turn until one finds a proof or a model: the
default; partial triggers, which instantiate a quantifier even if its pattern does not contain all its variables (an
index that is only compared occurs in no pattern); and enumerative instantiation. Each has a fixed effort in cvc5's own
units, so that the answer does not depend on the load of the machine.

If a question that divides stays open, cvc5 is asked the same for *any* quotient and remainder: two functions that are
not specified. What holds for all functions holds for these two, so a proof counts. A model does not: it may be one of
other functions. Division by an unknown number is hard for a solver, and most proofs need only that equal numbers have
equal quotients.
"""

import time
from importlib import import_module
from typing import Any

from kvproof.models.obligation import joined
from kvproof.models.solvers.solving import VERDICTS, Answer, Settings

NAME = "cvc5"  # also the name of its module, which has no type annotations
EFFORT_MAX = 400_000  # for each strategy, in cvc5's units: one to two seconds
STRATEGIES: tuple[dict[str, str], ...] = (
    {},
    {"partial-triggers": "true"},
    {"enum-inst": "true", "enum-inst-interleave": "true"},
)
# Z3 uses one name for different bound variables; without fresh-binders, cvc5 warns of each.
ALWAYS = {"fresh-binders": "true", "verbosity": "-1", "rlimit-per": str(EFFORT_MAX)}


def version() -> str:
    cvc5 = import_module(NAME)
    found: str = cvc5.__version__
    return found


def ask(assumed: str, goal: str, settings: Settings) -> Answer:
    """Ask cvc5 the question that `kvproof.models.solvers.solving.ask` asks Z3. The answer has no core."""
    text = joined(assumed, goal)
    began, effort, answer, reason = time.perf_counter(), 0, "unknown", ""
    for strategy in STRATEGIES:
        answer, reason, spent = _run(text, strategy, settings)
        effort += spent
        if answer != "unknown":
            break
    general = for_any_quotient(text)
    for strategy in STRATEGIES if answer == "unknown" and general != text else ():
        proved, _, spent = _run(general, strategy, settings)
        effort += spent
        if proved == "unsat":
            answer, reason = proved, ""
            break
    return Answer(VERDICTS[answer], time.perf_counter() - began, effort, reason)


def for_any_quotient(text: str) -> str:
    """The question with unspecified functions in place of quotient and remainder; as it is if it has none."""
    for name in ("div", "mod"):
        if f"({name} " in text:
            declared = f"(declare-fun any-{name} (Int Int) Int)"
            text = f"{declared}\n" + text.replace(f"({name} ", f"(any-{name} ")
    return text


def _run(text: str, strategy: dict[str, str], settings: Settings) -> tuple[str, str, int]:
    """The answer (sat, unsat or unknown), the reason if it is unknown, and the effort."""
    milliseconds = max(1, int(settings.timeout_seconds * 1000))
    limits = {"seed": str(settings.seed), "tlimit-per": str(milliseconds)}
    solver, answer, reason = run_script(text, ALWAYS | limits | strategy)
    return answer, reason, effort_of(solver)


def run_script(text: str, options: dict[str, str]) -> tuple[Any, str, str]:
    """Run a script of SMT-LIB in a new solver. Returns the solver, its answer, and the reason if that is unknown."""
    cvc5 = import_module(NAME)
    solver = cvc5.Solver(cvc5.TermManager())
    for name, value in options.items():
        solver.setOption(name, value)
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    output = ""
    while not (command := parser.nextCommand()).isNull():
        output = str(command.invoke(solver, parser.getSymbolManager())).strip() or output
    answer, _, reason = output.partition(" ")
    return (solver, answer, reason.strip("()")) if answer in VERDICTS else (solver, "unknown", output)


def effort_of(solver: Any) -> int:
    """cvc5's count of its own work."""
    counted = solver.getStatistics().get(internal=True, defaulted=True)
    return int(counted["resource::resourceUnitsUsed"]["value"])
