"""Asking cvc5, a solver that shares no code with Z3: what both prove does not rest on a mistake of one of them.

It is asked the same question as SMT-LIB text. Three ways are tried one after the other, and only a model or a proof
ends that: its usual one; one that instantiates a quantifier though its pattern leaves variables free (an index that is
only compared occurs in no pattern); and one that enumerates instances. Each is given a fixed effort, as cvc5 counts it,
so that a loaded machine changes no answer.
"""

import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kvproof.models.proofs.obligation import joined
from kvproof.models.solvers.solving import VERDICTS, Answer, Settings

NAME = "cvc5"  # also of its module, which ships no types
EFFORT_MAX = 400_000  # for each way, as cvc5 counts it: one to two seconds
WAYS: tuple[dict[str, str], ...] = (
    {},
    {"partial-triggers": "true"},
    {"enum-inst": "true", "enum-inst-interleave": "true"},
)
# Without the first, what Z3 calls by one name in two places draws a warning each time.
ALWAYS = {"fresh-binders": "true", "verbosity": "-1", "rlimit-per": str(EFFORT_MAX)}


def is_installed() -> bool:
    """Whether there is a second solver to ask."""
    return find_spec(NAME) is not None


def version() -> str:
    """The version of cvc5."""
    cvc5 = import_module(NAME)
    found: str = cvc5.__version__
    return found


def ask(assumed: str, goal: str, settings: Settings) -> Answer:
    """Ask cvc5 what `kvproof.models.solvers.solving.ask` asks Z3. It gives no core."""
    text = joined(assumed, goal)
    began, effort, said, reason = time.perf_counter(), 0, "unknown", ""
    for way in WAYS:
        said, reason, spent = _said(text, way, settings)
        effort += spent
        if said != "unknown":
            break
    return Answer(VERDICTS[said], time.perf_counter() - began, effort, reason)


def _said(text: str, way: dict[str, str], settings: Settings) -> tuple[str, str, int]:
    """What it says, why it gave up if it did, and the effort."""
    cvc5 = import_module(NAME)
    solver = cvc5.Solver(cvc5.TermManager())
    milliseconds = max(1, int(settings.timeout_seconds * 1000))
    for name, value in (ALWAYS | {"seed": str(settings.seed), "tlimit-per": str(milliseconds)} | way).items():
        solver.setOption(name, value)
    solver.setLogic("ALL")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said = str(command.invoke(solver, parser.getSymbolManager())).strip() or said
    answer, _, reason = said.partition(" ")
    return (answer, reason.strip("()"), _effort(solver)) if answer in VERDICTS else ("unknown", said, _effort(solver))


def _effort(solver: Any) -> int:
    counted = solver.getStatistics().get(internal=True, defaulted=True)
    return int(counted["resource::resourceUnitsUsed"]["value"])
