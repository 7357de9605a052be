"""`kvproof replay` and `kvproof bisect`: run saved counterexamples again, on one subject or on several releases."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.options import IsolationOption, JsonOption, LikeOption, TrustOption, of_checkout, workers_option
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.verdict import Exit

if TYPE_CHECKING:
    from kvproof.check.counterexample.replay import Replay

WORST_FIRST = (Exit.REFUTED, Exit.USAGE, Exit.INCONCLUSIVE, Exit.OK)


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Saved counterexamples.")],
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="Replay on this subject instead of the one named in the file."),
    ] = None,
    like: LikeOption = None,
    is_trusted: TrustOption = False,
    isolation: IsolationOption = None,
    page: Annotated[
        bool, typer.Option("--page", help="Write the HTML page of each counterexample again, from this replay.")
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Write each counterexample that FAILED as plain Python, which needs no kvproof: the calls of the "
            "manager's own objects, and the assertion that fails.",
        ),
    ] = False,
) -> None:
    """Replay each counterexample and report FIXED, FAILED or ERROR.

    Exits with 1 if one FAILED; else with 2 if a file is no counterexample or a subject does not exist; else with 4 if
    one could not be replayed.
    """
    with error_boundary():
        from kvproof.check.runs import replay as runs
        from kvproof.check.runs.replay import trust
        from kvproof.check.runs.terminal import output, say

        console, codes, trusted = output(), set(), trust(is_total=is_trusted)
        subject = of_checkout(subject, like)
        for path in files:
            done = runs.replay(path, subject, isolation, trusted)
            first, *rest = done.text.splitlines() or [""]
            named = "" if str(path) in first else f"{path}: "
            say(console, f"{done.status}  {named}{first}")
            for line in rest:
                say(console, f"  {line}")
            codes.add(_code(done))
            if page and str(done.status) != "ERROR":
                say(console, f"  Page: {runs.redraw(path, subject, isolation, trusted)}")
            if plain and done.finding is not None:
                script, written = runs.write_plain(path, done.finding, subject, isolation, trusted)
                say(console, f"  Plain Python: {script}")
                if note := f"Not complete: {written.missing}." if written.missing else written.remark:
                    say(console, f"  {note}")
        raise typer.Exit(next(code for code in WORST_FIRST if code in codes))


def _code(done: "Replay") -> Exit:
    if done.finding is not None:
        return Exit.REFUTED
    if str(done.status) != "ERROR":
        return Exit.OK
    return Exit.USAGE if done.is_misnamed else Exit.INCONCLUSIVE


def bisect(
    releases: Annotated[
        list[str],
        typer.Argument(metavar="RELEASES...", help="Versions, or A..B for the installed versions from A to B."),
    ],
    subject: Annotated[
        str, typer.Option("--subject", metavar="S", help="A subject with releases, for example vllm-v0.")
    ],
    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help="A saved counterexample.")],
    workers: Annotated[
        str | None, workers_option("Let so many processes, or a Ray cluster, replay the releases; ray starts one here.")
    ] = None,
    json: JsonOption = None,
) -> None:
    """Replay one counterexample on several releases, each in a process of its own.

    Exits with 0 if every release gave an answer (fixed or failed), and with 4 if one could not be replayed.
    """
    with error_boundary(json):
        import msgspec

        from kvproof.check.counterexample.replay import Answer, ReleaseOutcome, releases_of
        from kvproof.check.counterexample.replay import bisect as run
        from kvproof.check.hosts.choice import opened
        from kvproof.check.runs.json_output import write_document
        from kvproof.check.runs.replay import replay
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import EngineError
        from kvproof.check.subjects.loading.shipping import SHIPPING
        from kvproof.check.subjects.registry import engine_of

        console = output()
        try:
            named = releases_of(engine_of(subject), releases)
        except EngineError as error:
            raise UsageError(str(error)) from error
        width = max(len(name) for name in named)

        def report(answer: Answer) -> None:
            say(console, f"{answer.release:<{width}}  {answer.outcome.value:<7}  {answer.text}")

        with opened(workers, SHIPPING) as pool:
            each = map if pool is None else pool.results
            found = run(subject, trace, named, partial(replay, isolation=True), report, each)
        say(console, "")
        say(console, found.sentence())
        data = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        if json is not None:
            write_document(json, data)
        unknown = any(answer.outcome is ReleaseOutcome.UNKNOWN for answer in found.releases)
        raise typer.Exit(Exit.INCONCLUSIVE if unknown else Exit.OK)
