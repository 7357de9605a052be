"""A finding is one record from the judge to the page.

A `Finding` is raised, a `Counterexample` has the run that ends in it, a `Trace` is this run as a file, a `Check` is its
verdict in a result, and a `FindingView` shows it. A class counts as a type of a finding if its name says so, or if it
has a property and what is wrong with it. Every class that counts stands in one of the tables below, with the reason why
it is none of the five. A new one must be added there, or, better, left out.
"""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.syntax import parsed, statements

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("spec", "impl", "models", "reports", "check", "audit")
SAYS_SO = re.compile(r"Finding|Refut|Counterexample|\bFound")
WHAT_IS_WRONG = {"text", "sentence", "signature", "finding"}

TYPES = {
    "Finding": "raised by a judge",
    "Counterexample": "a configuration, operations, and the finding in which they end",
    "Trace": "a counterexample as a file",
    "Check": "the verdict of a judge in a result",
    "FindingView": "a check with its trace, for reports and pages",
}
ON_THE_WAY = {  # between two of the five, while a finding is saved; each may become a field of one of them
    "KeptFinding": "a counterexample while it is replayed, shortened and saved, and what failed of that",
}
NO_FINDINGS = {
    "Claim": "an invariant of the specification",
    "Clause": "a part of what is true after some iterations of a loop",
    "Contract": "what a rule of the specification promises",
    "Guard": "a condition of a rule",
    "CheckFailed": "a check in the text of a rule is false",
    "Required": "a guard as a formula",
    "Refutation": "of a proof: a state, not a run",
    "ProofCounterexample": "of a proof: a state, not a run",
    "DataFinding": "bytes that differ",
    "FindingKind": "how bytes differ",
    "FindingHistory": "the runs that had a finding",
    "Identity": "what makes two findings the same",
    "Known": "an entry of the list of known findings",
    "KnownFinding": "the same as the configuration has it",
    "KnownFindings": "the list",
    "OnFinding": "an option of a command",
    "Answer": "of a bisection: whether a release shows a finding",
    "CounterexampleError": "a file is no trace",
    "Refuted": "how a test of pytest fails",
    "RunRefuted": "how a run of Hypothesis fails",
    "Found": "what a look-up of an engine found",
}


@cache
def counted() -> list[tuple[str, str]]:
    """Each class that counts, with its root."""
    found = []
    for root in ROOTS:
        for file in sorted((ROOT / root).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            for node in statements(parsed(file)) if "property" in text or SAYS_SO.search(text) else ():
                if isinstance(node, ast.ClassDef) and counts(node):
                    found.append((root, node.name))
    return found


def counts(node: ast.ClassDef) -> bool:
    """Whether a class is a type of a finding by its name, or by its fields."""
    fields = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            fields |= {argument.arg for argument in (*one.args.args, *one.args.kwonlyargs)}
    return bool(SAYS_SO.search(node.name)) or ("property" in fields and bool(fields & WHAT_IS_WRONG))


def test_a_finding_has_five_types_and_each_other_class_that_looks_like_one_has_a_reason() -> None:
    names = {name for root, name in counted() if root != "audit"}
    assert names == {*TYPES, *ON_THE_WAY, *NO_FINDINGS}
    assert {name for root, name in counted() if root == "audit"} == set()
    assert (len(TYPES), len(ON_THE_WAY)) == (5, 1)


def test_the_name_of_a_type_of_a_finding_means_nothing_else() -> None:
    times = Counter(name for _, name in counted())
    assert {name: times[name] for name in (*TYPES, *ON_THE_WAY) if times[name] != 1} == {}
