"""`kvproof prove`: theorems for all sizes."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption
from kvproof.check.runs.errors import UsageError, error_boundary

PROVER_SEED_MAX = 2**31 - 1  # a larger one Z3 does not take


def prove(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Names, * for anything: 'specification/append/*'. Repeatable."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", min=0, max=PROVER_SEED_MAX, help="Of the solver; no verdict should depend on it."
        ),
    ] = 0,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.01, help="For each obligation; then it is unknown.")
    ] = 20.0,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, max=256, help="Processes that ask the solver.")
    ] = 2,
    text: Annotated[
        Path | None,
        typer.Option(
            "--text", metavar="FILE", help="Python with rules, words or claims in place of those of the specification."
        ),
    ] = None,
    second_solver: Annotated[
        bool, typer.Option("--second-solver", help="Ask cvc5 everything again; a contradiction refutes the run.")
    ] = False,
    smt2: Annotated[
        Path | None, typer.Option("--smt2", metavar="DIR", help="Write each question as a file of SMT-LIB.")
    ] = None,
    cores: Annotated[bool, typer.Option("--cores", help="Show which hypotheses each proof needed.")] = False,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Fail if a proof became harder than it says.")
    ] = None,
    save_baseline: Annotated[
        Path | None, typer.Option("--save-baseline", metavar="FILE", help="Write how hard each proof was.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Prove what is claimed for all sizes: any number of blocks, sequences, slots and steps.

    Every rule keeps every invariant, every check holds, every subscript is in range, every theorem follows; and what
    the other suites claim of arithmetic and of lists of copies. Nothing is drawn: the seed only moves the solver.
    What is not proved is searched for a small state from which a run breaks it; if none is found it is unknown.
    """
    with error_boundary(json):
        from kvproof.check.cli.prove_options import ProofOptions
        from kvproof.check.cli.prove_run import Proving, run_proofs
        from kvproof.models.solvers.solving import Settings
        from kvproof.models.translation.errors import NotInLanguage
        from kvproof.models.translation.text import specification

        settings = Settings(seed=seed, timeout_seconds=timeout, wants_core=cores)
        besides = ProofOptions(second_solver, smt2, baseline, save_baseline)
        try:
            other = None if text is None else specification().rewritten(read_text(text), str(text))
            raise typer.Exit(run_proofs(Proving(tuple(only or ()), settings, jobs, json, other, besides)))
        except (NotInLanguage, ValueError) as error:
            raise UsageError(str(error)) from error


def read_text(file: Path) -> str:
    """What stands in a file. Raises UsageError."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
