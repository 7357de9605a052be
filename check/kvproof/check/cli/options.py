"""Options that several commands share, and how their values are settled."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_FOLDER = Path(".kvproof")
SEED_MAX = 2**63 - 1
DRAWN_SEED_MAX = 2**32 - 1  # short enough to be typed again

SubjectOption = Annotated[
    str, typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own.")
]
BudgetOption = Annotated[float, typer.Option("--budget", metavar="SECONDS", min=0.1, help="Time for all judges.")]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, max=SEED_MAX, help="Repeats a run; drawn and printed if left out."),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the result, the reports (text, Markdown, JUnit, SARIF) and the counterexamples, each with a "
        "page and a test.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the result document there; - is standard output."),
]
KnownOption = Annotated[
    Path | None,
    typer.Option("--known", metavar="FILE", help="Findings that are known; kvproof.toml here, if left out."),
]
ContractOption = Annotated[
    bool,
    typer.Option("--contract-fails", help="Calls outside the contract of the engine fail the run, too."),
]
IsolationOption = Annotated[
    bool | None,
    typer.Option(
        "--isolation/--no-isolation",
        help="Keep the subject in a process of its own, with limits of time and memory; "
        "left out, every subject but kvproof's own.",
        show_default=False,
    ),
]


def settled_seed(seed: int | None) -> int:
    """The seed given, or a new one."""
    return secrets.randbelow(DRAWN_SEED_MAX + 1) if seed is None else seed
