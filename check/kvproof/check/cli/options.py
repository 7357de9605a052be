"""Options that several commands share."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_FOLDER = Path(".kvproof")
SEED_MAX = 2**63 - 1
DRAWN_SEED_MAX = 2**32 - 1  # short enough to type

SubjectOption = Annotated[
    str, typer.Option("--subject", metavar="S", help="A name of `kvproof subjects`, or module:factory of your own.")
]
BudgetOption = Annotated[
    float, typer.Option("--budget", metavar="SECONDS", min=0.1, help="Time limit for all judges together.")
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=SEED_MAX,
        help="Seed of the run; drawn at random and printed by default. The same seed repeats the run.",
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the result, the reports (text, Markdown, JUnit, SARIF) and the counterexamples, each with an "
        "HTML page and a regression test.",
    ),
]
JsonOption = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the result document to this file; - means standard output."
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run the subject that the file names even if it is code: a command, a module, a Python file or a "
        "checkout. By default a file names only subjects of `kvproof subjects`.",
    ),
]
KnownOption = Annotated[
    Path | None,
    typer.Option(
        "--known", metavar="FILE", help="File with known findings; by default kvproof.toml in the current folder."
    ),
]
ContractOption = Annotated[
    bool,
    typer.Option("--contract-fails", help="Let a call outside the engine's documented contract fail the run, too."),
]
IsolationOption = Annotated[
    bool | None,
    typer.Option(
        "--isolation/--no-isolation",
        help="Run the subject in a process of its own, with limits on time and memory. "
        "By default every subject but kvproof's own is isolated.",
        show_default=False,
    ),
]


def settled_seed(seed: int | None) -> int:
    """The given seed, or a random one."""
    return secrets.randbelow(DRAWN_SEED_MAX + 1) if seed is None else seed
