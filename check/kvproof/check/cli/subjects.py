"""`kvproof subjects` and `kvproof engines`: what can be checked, and the downloaded releases of engines."""

from typing import Annotated

import typer

from kvproof.check.cli.options import LikeOption
from kvproof.check.runs.errors import UsageError, error_boundary


def subjects() -> None:
    """List the subjects that `--subject` accepts, each with its level. Name a release as NAME==RELEASE.

    NAME==PATH is the checkout of an engine, judged in place of a release.
    """
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
def add(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="NAME==VERSION, or the folder of a checkout.")],
    like: LikeOption = None,
) -> None:
    """Download the sources of a release into the cache, unless they are there; or give a checkout a name of its own."""
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.loading import EngineError, download
        from kvproof.check.subjects.loading.checkouts import is_path, register

        try:
            if is_path(spec):
                name, folder = register(spec, like)
                say(
                    output(), f"{name} is the checkout {folder}, as it is whenever it is judged. Nothing of it was run."
                )
                return
            if like is not None:
                raise UsageError(f"--like {like} says which release a checkout is like, and {spec} is no folder")
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
            folder = engine.folder.readlink() if engine.folder.is_symlink() else engine.folder
            say(console, f"{engine.name}=={engine.version}  {folder}")
        if not found:
            say(console, "None yet: `kvproof engines add vllm==0.9.2` downloads one.")
