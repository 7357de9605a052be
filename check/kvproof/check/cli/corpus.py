"""`kvproof corpus`: real faults of KV-cache managers as data, shown both ways, and the score of what hunts for them."""

from collections import Counter
from typing import Annotated

import typer

from kvproof.check.cli.corpus_options import ClassOption, EngineOption, FolderOption, records
from kvproof.check.cli.corpus_runs import reproduce, run
from kvproof.check.runs.errors import UsageError, error_boundary, fail
from kvproof.spec.verdict import Exit

corpus = typer.Typer(
    no_args_is_help=True,
    help="Real faults of KV-cache managers as data: list them, show each both ways, score what hunts for them.",
)


@corpus.command("list")
def list_records(
    engine: EngineOption = None,
    fault_class: ClassOption = None,
    affects: Annotated[
        str | None,
        typer.Option(
            "--affects", metavar="NAME==VERSION", help="Only faults that this release of an engine has, and how known."
        ),
    ] = None,
    folder: FolderOption = None,
) -> None:
    """List the records: id, in which releases a run showed the fault, the class, and what goes wrong.

    With --affects vllm==0.31.0 it answers whether a release is affected.
    """
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import EngineError, download
        from kvproof.reports.summary import number

        console, release = output(), ""
        if affects is not None:
            try:
                named, release = download.parse(affects)
            except EngineError as error:
                raise UsageError(str(error), "affects") from error
            if engine not in (None, named):
                raise UsageError(f"--affects {affects} is no release of {engine}", "affects")
            engine = named
        found, _ = records(folder, None, engine, fault_class)
        shown = [(one, one.affects(release) if release else "") for one in found]
        shown = [(one, how) for one, how in shown if how is not None]
        width = max((len(one.id) for one, _ in shown), default=0)
        for one, how in shown:
            say(console, f"{one.id:<{width}}  {how or one.releases:<24}  {one.fault_class:<22}  {one.mechanism}")
        count = number(len(found), "record", "records")
        ways = "; ".join(f"{many} {how}" for how, many in Counter(how for _, how in shown).items())
        known = f": {ways}" if ways else ""
        say(console, f"{len(shown)} of {count} may affect {affects}{known}." if affects else f"{count}.")


@corpus.command()
def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Records, by id or alias.")],
    report: Annotated[
        bool, typer.Option("--report", help="Print the text of an issue for the tracker of the engine instead.")
    ] = False,
    folder: FolderOption = None,
) -> None:
    """Print records as text, or, with --report, as issues that can be pasted into the tracker of the engine."""
    with error_boundary():
        from kvproof.check.hunting.corpus.text import as_text, issue
        from kvproof.check.runs.terminal import output, say

        console, (found, examples) = output(), records(folder, ids)
        for one in found:
            if report and one.report is None:
                raise UsageError(f"{one.id} is {one.state}, so its record has no text for a tracker")
            text = issue(one, examples) if report else as_text(one)
            if console.is_terminal:
                say(console, text)
            else:
                print(text)


@corpus.command()
def validate(
    folder: FolderOption = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of a record instead, for an editor.")
    ] = False,
) -> None:
    """Check that the records agree with the files that they name, with kvproof and with themselves.

    Exits with 2 if one of them does not.
    """
    with error_boundary():
        from kvproof.check.hunting.corpus.record import schema_text
        from kvproof.check.hunting.corpus.validation import problems
        from kvproof.check.runs.terminal import output, say
        from kvproof.reports.summary import number

        if schema:
            print(schema_text(), end="")
            return
        found, examples = records(folder)
        count = number(len(found), "record", "records")
        if wrong := problems(found, examples):
            raise fail("\n".join([*wrong, f"{number(len(wrong), 'problem', 'problems')} in {count}"]), Exit.USAGE)
        engines = number(len({one.engine for one in found}), "engine", "engines")
        say(output(), f"The records are valid: {count} of {engines}.")


corpus.command()(reproduce)
corpus.command()(run)
