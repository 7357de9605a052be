"""`kvproof prove`: prove the theorems of the specification, and of kvproof's own code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.config import options_to_repeat, place_in
from kvproof.check.cli.options import HistoryOption, JsonOption, seconds_option, workers_option
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.extras import require_extra

if TYPE_CHECKING:
    from kvproof.models.solvers.answer_cache import AnswerCache
    from kvproof.models.solvers.solving import Settings

PROVER_SEED_MAX = 2**31 - 1  # the largest that Z3 accepts
PROVER_SECONDS_MAX = 1_400.0  # Z3 counts effort in 32 bits
TEXT_BYTES_MAX = 1 << 20  # of the file of --text; the specification has a tenth of it


def prove(
    context: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATTERN",
            help="Check only what has this name: suite/subject/claim, the beginning of a name up to a slash, or a "
            "pattern such as 'specification/append/*'. Repeatable; each pattern must match something.",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            max=PROVER_SEED_MAX,
            help="Seed of the solver. No verdict should depend on it.",
        ),
    ] = 0,
    timeout: Annotated[
        float,
        seconds_option(
            "--timeout",
            "Limit for each obligation, as the effort of so many seconds on an idle machine; beyond it, it is unknown. "
            "A busy machine gives the same answers.",
            least=0.01,
            most=PROVER_SECONDS_MAX,
        ),
    ] = 20.0,
    workers: Annotated[
        str,
        workers_option("Number of solver processes, or a Ray cluster; ray starts one here.", "--jobs"),
    ] = "2",
    text: Annotated[
        Path | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Python file with functions (rules, predicates, claims) that replace those of the specification.",
        ),
    ] = None,
    second_solver: Annotated[
        bool,
        typer.Option("--second-solver", help="Ask cvc5 every question again; if the solvers disagree, the run fails."),
    ] = False,
    smt2: Annotated[
        Path | None, typer.Option("--smt2", metavar="DIR", help="Write each question as an SMT-LIB file.")
    ] = None,
    certificates: Annotated[
        Path | None,
        typer.Option(
            "--certificates",
            metavar="DIR",
            help="Have cvc5 prove everything again, and write each question and proof for an independent checker. "
            "Files of an earlier run are kept if they are still right.",
        ),
    ] = None,
    cores: Annotated[bool, typer.Option("--cores", help="Show which hypotheses each proof needed.")] = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="Fail if a proof takes more effort than in this file."),
    ] = None,
    save_baseline: Annotated[
        Path | None,
        typer.Option("--save-baseline", metavar="FILE", help="Write the effort of each proof to it."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="If everything is proved, write the record of the release (for maintainers: it is packed)."
        ),
    ] = False,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache/--no-cache",
            help="Take proofs of equal questions from earlier runs of this user, counted as cached; or ask every "
            "question. --record asks every question.",
        ),
    ] = True,
    history: HistoryOption = None,
    json: JsonOption = None,
) -> None:
    """Prove the theorems for every size: any number of blocks, sequences, slots and steps.

    Every rule keeps every invariant, every check holds, every subscript is in range, and every theorem follows from
    the invariants. The other suites prove facts of arithmetic, of lists of copies and of kvproof's own code; one of
    them is bounded (objects of at most four blocks) and is counted apart. Nothing is random: the seed only affects the
    solver. For an obligation that is not proved, small states are searched for one in which a run breaks it; if
    none is found, the obligation is unknown.
    """
    with error_boundary(json, place_in(context)):
        require_extra("prove", "kvproof prove")
        if second_solver or certificates is not None:
            require_extra("second-solver", "--second-solver" if second_solver else "--certificates")
        from kvproof.check.proving.options import ProofOptions
        from kvproof.check.proving.questions import deciding
        from kvproof.check.proving.run import ProofRequest, run_proofs
        from kvproof.check.runs.history import require_recordable
        from kvproof.models.solvers.solving import Settings
        from kvproof.models.translation.errors import NotInLanguage
        from kvproof.models.translation.text import specification

        require_recordable(history)
        compares_efforts = baseline is not None or save_baseline is not None
        settings = Settings.by_effort(timeout, seed, cores, is_alone=compares_efforts)
        options = ProofOptions(second_solver, smt2, baseline, save_baseline, certificates, record)
        try:
            other = None if text is None else specification().rewritten(read_text(text), str(text))
            with deciding(workers) as decide:
                request = ProofRequest(tuple(only or ()), settings, decide, json, other, options, history=history)
                words = tuple(options_to_repeat(context))
                request = replace(request, words=words, cache=answer_cache(settings) if cache and not record else None)
                raise typer.Exit(run_proofs(request))
        except (NotInLanguage, ValueError) as error:
            raise UsageError(str(error)) from error


def answer_cache(settings: Settings) -> AnswerCache | None:
    """The answers of earlier runs; None if their file cannot be used, which is reported."""
    import sqlite3

    from kvproof.check.hosts import workers
    from kvproof.check.proving import questions
    from kvproof.check.proving.options import SOLVER
    from kvproof.check.runs.terminal import output, say
    from kvproof.models.solvers.answer_cache import AnswerCache, default_file

    handed_on_by = Path(questions.__file__).parent, Path(workers.__file__).parent
    try:
        return AnswerCache(default_file(), SOLVER, settings, handed_on_by)
    except (OSError, sqlite3.Error, UnicodeDecodeError, RuntimeError) as error:  # RuntimeError: there is no home folder
        say(output(), f"no answers of earlier runs are used: {error}", "yellow")
        return None


def read_text(file: Path) -> str:
    """Read a UTF-8 file of at most TEXT_BYTES_MAX. Raises UsageError if that fails."""
    from kvproof.reports.document import DocumentError, read_bytes

    try:
        return read_bytes(file, TEXT_BYTES_MAX).decode()
    except DocumentError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {file}: {error}") from error
