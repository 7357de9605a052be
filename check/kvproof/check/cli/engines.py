"""`kvproof engines`: download releases of engines, so that they can be checked."""

from typing import Annotated

import typer

from kvproof.check.runs.errors import UsageError, error_boundary

engines = typer.Typer(no_args_is_help=True, help="Download a release of an engine, or list the downloaded ones.")


@engines.command()
def add(spec: Annotated[str, typer.Argument(metavar="SPEC", help="NAME==VERSION, or a folder with sources.")]) -> None:
    """Download the sources of a release into the cache, unless they are there."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import EngineError, download

        try:
            folder = download.add(spec)
        except EngineError as error:
            raise UsageError(str(error)) from error
        say(output(), f"{spec} is in {folder}")


@engines.command("list")
def list_engines() -> None:
    """List the downloaded releases."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import download

        console, found = output(), download.installed_engines()
        for engine in found:
            say(console, f"{engine.name}=={engine.version}  {engine.folder}")
        if not found:
            say(console, "None yet: `kvproof engines add vllm==0.9.2` downloads one.")
