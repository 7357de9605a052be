"""`kvproof corpus reproduce` and `kvproof corpus run`: the commands of the corpus that run engines."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvproof.check.cli.corpus_options import ClassOption, EngineOption, FolderOption, IdsArgument, records
from kvproof.check.cli.options import DEFAULT_FOLDER, JsonOption, workers_option
from kvproof.check.cli.table import lines_of
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.check.runs.number_limits import SEED_MAX
from kvproof.spec.verdict import Exit

if TYPE_CHECKING:
    from kvproof.check.hunting.corpus.both_ways import Showing, Shown
    from kvproof.check.hunting.corpus.score import Hunt, HuntResult, Score
    from kvproof.check.hunting.corpus.score_document import ScoreDocument
    from kvproof.check.runs.terminal import Output

STORE = "corpus.sqlite"
WorkersOption = Annotated[str, workers_option("Number of processes that do the work, or a Ray cluster.")]


def reproduce(
    ids: IdsArgument = None,
    engine: EngineOption = None,
    fault_class: ClassOption = None,
    every_release: Annotated[
        bool,
        typer.Option(
            "--every-release",
            help="Run each in every release that its record names, not only in a bad and in a good one.",
        ),
    ] = False,
    checkout: Annotated[
        Path | None,
        typer.Option("--checkout", metavar="DIR", help="A checkout of an engine that has no releases."),
    ] = None,
    workers: WorkersOption = "1",
    folder: FolderOption = None,
    json: JsonOption = None,
) -> None:
    """Show records both ways: script and saved run show the fault in a bad release, and not in a good one.

    Releases are downloaded. Exits with 1 if a record says something else than what was seen, with 4 if one of them
    could not be run, and with 5 if none of them has a script or a saved run.
    """
    with error_boundary(json):
        from kvproof.check.hosts.choice import opened
        from kvproof.check.hosts.workers import LOSS_IS_A_RESULT, UnitLost
        from kvproof.check.hunting.corpus.both_ways import Outcome, Shown, showings, shown
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.summary import number

        found, examples = records(folder, ids, engine, fault_class)
        if checkout is not None and any(one.has_releases for one in found):
            raise UsageError("--checkout is for an engine without releases; name its records", "checkout")
        units = [unit for one in found for unit in showings(one, examples, every_release, checkout)]
        console, wrong, unknown, rows = output(), 0, 0, list[dict[str, Any]]()
        with opened(workers) as pool:
            assert pool is not None
            for unit, done in zip(units, pool.results(shown, units, LOSS_IS_A_RESULT), strict=True):
                done = Shown(Outcome.UNKNOWN, str(done)) if isinstance(done, UnitLost) else done
                is_unknown = done.outcome is Outcome.UNKNOWN
                wrong, unknown = wrong + (not is_unknown and done.outcome is not unit.expected), unknown + is_unknown
                say(console, _line(unit, done))
                rows.append(_row(unit, done))
        bare = sum(not (one.script or one.trace) for one in found)
        counts = f"{number(len(found), 'record', 'records')}, {number(len(units), 'run', 'runs')}"
        neither = number(bare, "record has", "records have")
        say(console, f"{counts}: {len(units) - wrong - unknown} as the records say, "
            f"{wrong} otherwise, {unknown} unknown. {neither} neither a script nor a saved run.")  # fmt: skip
        _write(json, {"runs": rows})
        if not units:
            raise typer.Exit(Exit.NOTHING_CHECKED)
        raise typer.Exit(Exit.REFUTED if wrong else Exit.INCONCLUSIVE if unknown else Exit.OK)


def _line(unit: "Showing", done: "Shown") -> str:
    mark = "      " if done.outcome.value == "unknown" or done.outcome is unit.expected else "WRONG "
    return f"{mark}{done.outcome.value:<7}  {unit.fault.id}  {unit.by}, {unit.release}: {done.text}"


def _row(unit: "Showing", done: "Shown") -> dict[str, Any]:
    names = {"id": unit.fault.id, "by": unit.by, "release": unit.release, "expected": unit.expected.value}
    return names | {"outcome": done.outcome.value, "text": done.text}


def run(
    ids: IdsArgument = None,
    engine: EngineOption = None,
    fault_class: ClassOption = None,
    seeds: Annotated[str, typer.Option("--seeds", metavar="N,N", help="A hunt for each of these seeds.")] = "1,2,3",
    effort: Annotated[
        str, typer.Option("--effort", metavar="quick|normal|long|N", help="Effort of each hunt, as of `kvproof hunt`.")
    ] = "normal",
    tool: Annotated[
        str | None,
        typer.Option("--tool", metavar="COMMAND", help="Score this program and not kvproof; docs/corpus.md says how."),
    ] = None,
    workers: WorkersOption = "1",
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder that keeps the results: the same command goes on.")
    ] = DEFAULT_FOLDER / "corpus",
    folder: FolderOption = None,
    json: JsonOption = None,
) -> None:
    """Score what finds the faults: hunt each in its newest bad release, from an empty store, with default settings.

    A record is found if more than half of the seeds see its fault. The score counts all records: also those that no
    subject drives. Exits with 0, or with 4 if some could not be hunted.
    """
    with error_boundary(json):
        from kvproof.check.hosts.choice import opened
        from kvproof.check.hosts.interrupt import interruptible
        from kvproof.check.hunting.corpus import score
        from kvproof.check.hunting.store import ResultStore
        from kvproof.check.runs.effort import effort_of
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading.shipping import SHIPPING

        numbers, console = _seeds(seeds), output()
        _require_program(tool)
        effort = effort_of(effort, None).name
        found, examples = records(folder, ids, engine, fault_class)
        planned = score.hunts(found, examples, numbers, effort, tool)
        say(console, f"kvproof corpus run, {len(found)} records, {len(planned)} hunts, effort {effort}, seeds {seeds}")

        def report(hunt: "Hunt", done: "HuntResult") -> None:
            names = ", ".join(one.id for one in done.sights) or "none"
            why = f"; ended: {done.reason}" if done.reason else ""
            say(console, f"  {hunt.subject}, seed {hunt.seed}: {len(done.sights)} of {len(hunt.wanted)} seen after "
                f"{done.num_operations:,} operations, {done.seconds:.0f} CPU s: {names}{why}")  # fmt: skip

        with closing(ResultStore(out / STORE)) as store, opened(workers, SHIPPING) as pool:
            assert pool is not None
            with interruptible():
                results = score.run(planned, pool, store, report)
        scored = score.scores(found, results)
        _print(console, scored)
        _write(json, _as_data(scored, numbers, effort, tool))
        is_open = any(one.outcome == score.NOT_HUNTED for one in scored)
        raise typer.Exit(Exit.INCONCLUSIVE if is_open else Exit.OK)


def _seeds(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(set(numbers)) < len(numbers) or not all(0 <= one <= SEED_MAX for one in numbers):
        raise UsageError(f"--seeds takes different numbers with commas between them, such as 1,2,3; it is {text!r}")
    return numbers


def _require_program(tool: str | None) -> None:
    """Raise UsageError unless the command of a tool begins with a program that is here."""
    import shlex
    import shutil

    if tool is None:
        return
    try:
        words = shlex.split(tool)
    except ValueError as error:
        raise UsageError(f"--tool: {error}", "tool") from error
    try:
        is_here = bool(words) and shutil.which(words[0]) is not None
    except OSError:  # the name is too long
        is_here = False
    if not is_here:
        raise UsageError(f"--tool: there is no program {words[0] if words else repr(tool)}", "tool")


def _print(console: "Output", scored: "list[Score]") -> None:
    """The table by class and by engine, and what was not found."""
    from kvproof.check.hunting.corpus.score import FOUND, MISSED, NOT_HUNTED, table
    from kvproof.check.runs.terminal import say

    for title, of in (("class", _class_of), ("engine", _engine_of)):
        rows: list[tuple[str, ...]] = [(title, "records", FOUND, MISSED, NOT_HUNTED)]
        for name, counts in table(scored, of):
            rows.append((name, str(counts.total()), *(str(counts[one]) for one in (FOUND, MISSED, NOT_HUNTED))))
        say(console, "")
        for line in lines_of(rows):
            say(console, line)
    say(console, "")
    for one in scored:
        if one.outcome != FOUND:
            say(console, f"{one.outcome}: {one.fault.id}: {one.cause}")
        elif one.fault.missed is not None:
            say(console, f"found although its record says {one.fault.missed.cause}: {one.fault.id}", "yellow")
    num_found = sum(one.outcome == FOUND for one in scored)
    say(console, f"{num_found} of {len(scored)} found ({num_found / len(scored):.0%}).")


def _class_of(one: "Score") -> str:
    return one.fault.fault_class


def _engine_of(one: "Score") -> str:
    return one.fault.engine


def _as_data(scored: "list[Score]", seeds: list[int], effort: str, tool: str | None) -> "ScoreDocument":
    from kvproof.check.hunting.corpus.score_document import RecordScore, ScoreDocument, SeedSight

    rows = []
    for one in scored:
        seen = [SeedSight(seed, at.by, at.num_operations, at.seconds) for seed, at in sorted(one.sights.items())]
        rows.append(RecordScore(one.fault.id, one.outcome, one.cause, seen))
    return ScoreDocument(tool or "kvproof", seeds, effort, rows)


def _write(json: Path | None, data: object) -> None:
    if json is not None:
        import msgspec

        from kvproof.check.runs.json_output import write_document

        write_document(json, msgspec.json.format(msgspec.json.encode(data), indent=2) + b"\n")
