"""`kvproof subjects` and `kvproof engines`: what can be checked, and the downloaded releases of engines."""

from typing import Annotated

import typer

from kvproof.check.runs.errors import UsageError, error_boundary


def subjects() -> None:
    """List the subjects that `--subject` accepts, each with its level. Name a release as NAME==RELEASE."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.registry import NAMED

        lines = [(row.name, row.level, "; ".join(filter(None, (row.sentence, row.usage)))) for row in NAMED.values()]
        lines += [
            ("module:factory", "any", "a subject of your own: a function without arguments that returns it"),
            ("pipe:COMMAND", "manager", "a subject of your own in any language: a program that answers JSON lines"),
        ]
        console, width = output(), max(len(name) for name, _, _ in lines)
        for name, level, text in lines:
            say(console, f"{name:<{width}}  {level:<9}  {text}")


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
        files = sum(1 for _ in folder.rglob("*.py"))
        say(output(), f"{spec} is in {folder}: {files:,} Python files, with their metadata. None of them was run.")


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
