"""`kvproof prove`: prove the theorems of the specification, and of kvproof's own code."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.config import options_to_repeat, place_in
from kvproof.check.cli.options import HistoryOption, JsonOption, seconds_option, workers_option
from kvproof.check.runs.errors import error_boundary
from kvproof.spec.extras import require_extra

PROVER_SEED_MAX = 2**31 - 1  # the largest that Z3 accepts
PROVER_SECONDS_MAX = 1_400.0  # Z3 counts effort in 32 bits

OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="PATTERN",
        help="Check only what has this name: suite/subject/claim, the beginning of a name up to a slash, or a "
        "pattern such as 'specification/append/*'. Repeatable; each pattern must match something.",
    ),
]
SolverSeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=PROVER_SEED_MAX,
        help="Seed of the solver. No verdict should depend on it.",
    ),
]
TimeoutOption = Annotated[
    float,
    seconds_option(
        "--timeout",
        "Limit for each obligation, as the effort of so many seconds on an idle machine; beyond it, it is unknown. "
        "A busy machine gives the same answers.",
        least=0.01,
        most=PROVER_SECONDS_MAX,
    ),
]
SolversOption = Annotated[
    str, workers_option("Number of solver processes, or a Ray cluster; ray starts one here.", "--jobs")
]
TextOption = Annotated[
    Path | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="Python file with functions (rules, predicates, claims) that replace those of the specification.",
    ),
]
SecondSolverOption = Annotated[
    bool,
    typer.Option("--second-solver", help="Ask cvc5 every question again; if the solvers disagree, the run fails."),
]
QuestionsOption = Annotated[
    Path | None, typer.Option("--smt2", metavar="DIR", help="Write each question as an SMT-LIB file.")
]
CertificatesOption = Annotated[
    Path | None,
    typer.Option(
        "--certificates",
        metavar="DIR",
        help="Have cvc5 prove everything again, and write each question and proof for an independent checker. "
        "Files of an earlier run are kept if they are still right.",
    ),
]
CoresOption = Annotated[bool, typer.Option("--cores", help="Show which hypotheses each proof needed.")]
EffortsOption = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="Fail if a proof takes more effort than in this file."),
]
SaveEffortsOption = Annotated[
    Path | None,
    typer.Option("--save-baseline", metavar="FILE", help="Write the effort of each proof to it."),
]
RecordOption = Annotated[
    bool,
    typer.Option(
        "--record", help="If everything is proved, write the record of the release (for maintainers: it is packed)."
    ),
]
CacheOption = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache",
        help="Take proofs of equal questions from earlier runs of this user, counted as cached; or ask every "
        "question. --record asks every question.",
    ),
]


def prove(
    context: typer.Context,
    only: OnlyOption = None,
    seed: SolverSeedOption = 0,
    timeout: TimeoutOption = 20.0,
    workers: SolversOption = "2",
    text: TextOption = None,
    second_solver: SecondSolverOption = False,
    smt2: QuestionsOption = None,
    certificates: CertificatesOption = None,
    cores: CoresOption = False,
    baseline: EffortsOption = None,
    save_baseline: SaveEffortsOption = None,
    record: RecordOption = False,
    cache: CacheOption = True,
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
        from kvproof.check.proving.run import ProofRequest, run_proofs
        from kvproof.check.runs.history import require_recordable
        from kvproof.models.solvers.solving import Settings

        require_recordable(history)
        options = ProofOptions(second_solver, smt2, baseline, save_baseline, certificates, record)
        settings = Settings.by_effort(timeout, seed, cores, is_alone=options.compares_efforts)
        words, uses_cache = tuple(options_to_repeat(context)), cache and not record
        request = ProofRequest(tuple(only or ()), settings, options, workers, text, uses_cache, json, history, words)
        raise typer.Exit(run_proofs(request))
