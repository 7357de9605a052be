"""`kvproof explore`: search every reachable state of one scope."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from kvproof.check.cli.config import options_to_repeat, place_in
from kvproof.check.cli.options import (
    DEFAULT_FOLDER,
    ContractOption,
    HistoryOption,
    IsolationOption,
    JsonOption,
    KnownOption,
    LikeOption,
    OutOption,
    jobs_option,
    of_checkout,
    seconds_option,
    workers_option,
)
from kvproof.check.runs.errors import UsageError, error_boundary

if TYPE_CHECKING:
    from kvproof.check.hosts.workers import StatefulWorkers
    from kvproof.check.protocol.scopes import Scope
    from kvproof.check.runs.run import RunOptions
    from kvproof.check.search.result import SearchResult
    from kvproof.check.search.strategies import Strategy
    from kvproof.spec.verdict import Exit


class Reader(StrEnum):
    """What reads the text of the specification."""

    PYTHON = "python"
    C = "c"


STATES_PER_WORKER = {Reader.PYTHON: 100_000, Reader.C: 10_000_000}  # 1 GB of 10 KB each; in C --memory limits them


BlocksOption = Annotated[int | None, typer.Option("--blocks", metavar="N", min=1, max=64, help="Number of GPU blocks.")]
SeqsOption = Annotated[int | None, typer.Option("--seqs", metavar="S", min=1, max=16, help="Number of sequences.")]
TokensOption = Annotated[
    int | None, typer.Option("--tokens", metavar="T", min=1, max=256, help="Tokens of each sequence.")
]
ScopeOption = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="NAME",
        help="The named scope to search, by default tables-4x3x6 (of a store, slots-2x1x2); "
        "the sizes given replace its own.",
    ),
]
ExploredOption = Annotated[
    str | None,
    typer.Option(
        "--subject", metavar="S", help="Search this subject in lockstep; without it, the specification itself."
    ),
]
TransitionsOption = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="quick|normal|long|N",
        help="Stop after 20,000, 100,000 or 1,000,000 transitions, or N/5 (20,000 at least); every state by default.",
    ),
]
TimeOption = Annotated[float | None, seconds_option("--budget", "Time limit; none by default.")]
ReaderOption = Annotated[
    Reader,
    typer.Option(
        "--reader",
        help="What reads the specification: Python, or C, which needs a C compiler and searches larger scopes.",
    ),
]
ThreadsOption = Annotated[int | None, jobs_option("Threads of the C reader; by default as many as there are cores.")]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory",
        metavar="GB",
        min=0.05,
        max=100_000,
        help="Memory for the states of the C reader; by default half of what the machine has.",
    ),
]
DividedOption = Annotated[
    str | None,
    workers_option(
        "Divide the states of the specification among so many processes of this machine, or a Ray cluster (ray "
        "starts one here)."
    ),
]
StatesOption = Annotated[
    int | None,
    typer.Option(
        "--states-per-worker",
        metavar="N",
        min=1,
        max=10**12,
        help="The most states that a worker of --workers keeps; by default 100,000 in Python, about 1 GB, and "
        "as many as --memory holds in C.",
    ),
]


def explore(
    context: typer.Context,
    blocks: BlocksOption = None,
    seqs: SeqsOption = None,
    tokens: TokensOption = None,
    scope: ScopeOption = None,
    subject: ExploredOption = None,
    like: LikeOption = None,
    effort: TransitionsOption = None,
    budget: TimeOption = None,
    reader: ReaderOption = Reader.PYTHON,
    jobs: ThreadsOption = None,
    memory: MemoryOption = None,
    workers: DividedOption = None,
    states_per_worker: StatesOption = None,
    isolation: IsolationOption = None,
    known: KnownOption = None,
    contract_fails: ContractOption = False,
    history: HistoryOption = None,
    out: OutOption = DEFAULT_FOLDER,
    json: JsonOption = None,
) -> None:
    """Search every reachable state of one scope, of the specification or of a subject. The search needs no seed."""
    with error_boundary(json, place_in(context)):
        from kvproof.check.hunting.explore_stage import subject_stage
        from kvproof.check.hunting.findings import saving_of
        from kvproof.check.runs.arguments import factory_of
        from kvproof.check.runs.effort import BY_BUDGET, effort_of
        from kvproof.check.runs.history import require_recordable
        from kvproof.check.runs.run import RunOptions, run_stages
        from kvproof.check.search.strategies import MANAGERS, strategy_of
        from kvproof.reports.result import THE_SPECIFICATION

        require_recordable(history)
        subject = of_checkout(subject, like)
        _require_reader(reader, subject, jobs, memory, workers)
        made = None if subject is None else factory_of(subject, isolation, budget)
        strategy = MANAGERS if made is None else strategy_of(made[1])
        if not strategy.can_explore:
            raise UsageError(f"{subject} is a {strategy.level.name}; {strategy.no_scopes}, use kvproof hunt")
        scopes = _scopes(strategy, scope, {"blocks": blocks, "seqs": seqs, "tokens": tokens})
        chosen = BY_BUDGET if effort is None else effort_of(effort, budget, subject or "")
        name = subject or THE_SPECIFICATION
        options = RunOptions("explore", name, 0, budget, out, json, known, contract_fails, chosen)
        options.history, options.words = history, options_to_repeat(context)
        if made is None:
            read = Reading(reader, jobs, memory, states_per_worker)
            raise typer.Exit(_explore_specification(options, scopes, read, workers))
        make, one = made
        saving, most = saving_of(options, make, isolation), chosen.transitions
        stage = subject_stage(make, one, scopes, saving, 1, max_transitions=most)
        raise typer.Exit(run_stages(options, [stage], one))


def _require_reader(
    reader: Reader, subject: str | None, jobs: int | None, memory: float | None, workers: str | None
) -> None:
    """Raise UsageError for options that do not go together."""
    if reader is Reader.C and subject is not None:
        raise UsageError("--reader c explores the specification; leave out --subject, or --reader")
    if reader is Reader.PYTHON and (jobs or memory):
        raise UsageError("--jobs and --memory belong to --reader c")
    if workers is not None and (subject is not None or jobs):
        raise UsageError("--workers divides the states of the specification; leave out --subject and --jobs")


def _scopes(strategy: "Strategy", scope: str | None, given: dict[str, int | None]) -> "dict[str, Scope]":
    """The scope of this name with the sizes that are given, by a name that says them. Raises UsageError."""
    from dataclasses import replace

    from kvproof.check.protocol.suggestion import did_you_mean

    named, scope = strategy.exhaustive.named, scope or strategy.exhaustive.default
    if scope not in named:
        raise UsageError(
            f"there is no scope {scope}{did_you_mean(scope, list(named))}; the scopes are {', '.join(named)}"
        )
    name = "-".join([scope, *(f"{option}-{value}" for option, value in given.items() if value is not None)])
    whole = named[scope]
    sized = replace(
        whole,
        num_gpu_blocks=given["blocks"] or whole.num_gpu_blocks,
        num_seqs=given["seqs"] or whole.num_seqs,
        num_tokens=given["tokens"] or whole.num_tokens,
    )
    return {name: sized}


class Reading(NamedTuple):
    """How the text of the specification is read."""

    reader: Reader
    jobs: int | None
    memory: float | None
    states_per_worker: int | None


def _explore_specification(
    options: "RunOptions", scopes: "dict[str, Scope]", read: Reading, workers: str | None
) -> "Exit":
    from kvproof.check.hosts.choice import opened
    from kvproof.check.hunting.explore_stage import SPECIFICATION, specification_stage
    from kvproof.check.runs.run import run_stages
    from kvproof.check.search.exhaustive.specification import explore_specification

    judge, search = SPECIFICATION, cast("Callable[..., SearchResult]", explore_specification)
    if read.reader is Reader.C:
        (scope,) = scopes.values()
        judge, search = _c_reader(scope, read.jobs, read.memory)
    with opened(workers) as pool:
        if pool is not None:
            search = _by_workers(pool, read.states_per_worker, read.reader, read.memory)
        stage = specification_stage(scopes, 1, False, options.effort.transitions, search, judge)
        return run_stages(options, [stage], None)


def _c_reader(scope: "Scope", jobs: int | None, memory: float | None) -> tuple[str, "Callable[..., SearchResult]"]:
    """The name of the judge that reads the text in C, and its search. Raises UsageError if it cannot be had."""
    from kvproof.check.hunting.explore_stage import SPECIFICATION
    from kvproof.check.search.exhaustive.c_reader import exploration
    from kvproof.check.search.exhaustive.c_reader.specification import SpecificationInC, UnfitForC
    from kvproof.spec.c_reader.library import NoLibrary

    try:
        spec = SpecificationInC(scope)
    except (NoLibrary, UnfitForC) as error:
        raise UsageError(str(error)) from error
    search = partial(
        exploration.explore_in_c,
        workers=min(jobs or exploration.num_cores(), exploration.WORKERS_MAX),
        max_bytes=int((memory or 0) * 1e9) or None,
        spec=spec,
    )
    return f"{SPECIFICATION} ({exploration.NAME})", search


def _by_workers(
    workers: "StatefulWorkers", states_per_worker: int | None, reader: Reader, memory: float | None
) -> "Callable[..., SearchResult]":
    """A search whose states are divided among workers."""
    from kvproof.check.hunting.partitioned_search import PartitionedReader
    from kvproof.check.search.exhaustive.c_reader import exploration

    states_max = states_per_worker or STATES_PER_WORKER[reader]
    if reader is Reader.PYTHON:
        return PartitionedReader(workers, states_max)
    num_bytes = int((memory or 0) * 1e9) or exploration.memory_by_default()
    return PartitionedReader(workers, states_max, num_bytes)
