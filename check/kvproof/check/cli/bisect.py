"""`kvproof bisect`: find the releases of an engine in which a counterexample fails."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import JsonOption
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.verdict import Exit


def bisect(
    releases: Annotated[
        list[str],
        typer.Argument(metavar="RELEASES...", help="Versions, or A..B for the installed versions from A to B."),
    ],
    subject: Annotated[
        str, typer.Option("--subject", metavar="S", help="A subject with releases, for example vllm-v0.")
    ],
    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help="A saved counterexample.")],
    json: JsonOption = None,
) -> None:
    """Replay one counterexample on several releases, each in a process of its own.

    Exits with 0 if every release gave an answer (fixed or failed), and with 4 if one could not be replayed.
    """
    with error_boundary(json):
        import msgspec

        from kvproof.check.counterexample.bisection import Answer, ReleaseOutcome, releases_of
        from kvproof.check.counterexample.bisection import bisect as run
        from kvproof.check.runs.json_output import write_document
        from kvproof.check.runs.replay import replay
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import EngineError
        from kvproof.check.subjects.registry import engine_of

        console = output()
        try:
            named = releases_of(engine_of(subject), releases)
        except EngineError as error:
            raise UsageError(str(error)) from error
        width = max(len(name) for name in named)

        def report(answer: Answer) -> None:
            say(console, f"{answer.release:<{width}}  {answer.outcome.value:<7}  {answer.text}")

        found = run(subject, trace, named, lambda path, name: replay(path, name, isolation=True), report)
        say(console, "")
        say(console, found.sentence())
        data = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        if json is not None:
            write_document(json, data)
        unknown = any(answer.outcome is ReleaseOutcome.UNKNOWN for answer in found.releases)
        raise typer.Exit(Exit.INCONCLUSIVE if unknown else Exit.OK)
