"""`kvproof subjects` and `kvproof engines`: what can be checked, and the downloaded releases of engines."""

from pathlib import Path
from typing import Annotated

import typer

from kvproof.check.cli.options import LikeOption, OutOption
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.check.runs.number_limits import SEED_MAX


def subjects() -> None:
    """List the subjects that `--subject` accepts, each with its level. Name a release as NAME==RELEASE.

    NAME==PATH is the checkout of an engine, judged in place of a release.
    """
    with error_boundary():
        from kvproof.check.runs.terminal import output, say
        from kvproof.check.subjects.plugins import fault_of, package_of, plugins
        from kvproof.check.subjects.registry import NAMED

        lines = [(row.name, row.level, "; ".join(filter(None, (row.sentence, row.usage)))) for row in NAMED.values()]
        for name, plugin in plugins().items():
            fault = fault_of(name, NAMED)
            lines.append((name, "plugin", f"of {package_of(plugin)}{f'; cannot be used: {fault}' if fault else ''}"))
        lines += [
            ("module:factory", "any", "a subject of your own: a function without arguments that returns it"),
            ("pipe:COMMAND", "manager", "a subject of your own in any language: a program that answers JSON lines"),
        ]
        console, width = output(), max(len(name) for name, _, _ in lines)
        for name, level, text in lines:
            say(console, f"{name:<{width}}  {level:<9}  {text}")


engines = typer.Typer(
    no_args_is_help=True, help="Download a release of an engine, list the downloaded ones, or check newer ones."
)
DEFAULT_FOLDER = Path(".kvproof/ageing")


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


@engines.command("check")
def check_engines(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUBJECT]...", help="As vllm-v1, without a release. Default: all that go on."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="RELEASE", help="Default: the newest release that the subject was judged with."),
    ] = None,
    after: Annotated[
        str | None, typer.Option("--to", metavar="RELEASE", help="Default: the newest that the package index offers.")
    ] = None,
    effort: Annotated[
        str,
        typer.Option("--effort", metavar="quick|normal|long|N", help="How much each hunt does, as for `hunt`."),
    ] = "100000",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, max=SEED_MAX, help="Seed of both hunts.")] = 1,
    out: OutOption = DEFAULT_FOLDER,
) -> None:
    """Hunt newer releases beside those that were judged, and write one page of what differs.

    For each subject: the findings that came and went, the functions of the engine that its adapter plays itself or that
    ran and that differ, and options with another default. Exit codes: 0 if nothing is added, 6 if a finding is, if less
    was judged or if a release cannot be driven, 4 if a hunt left something open.
    """
    with error_boundary():
        from kvproof.check.hunting.ageing.check import AgeingOptions, check
        from kvproof.check.runs.effort import effort_of

        if len(names or []) != 1 and (before or after):
            raise UsageError("--from and --to name releases of one engine; name one subject with them")
        kind = effort_of(effort, None).name
        raise typer.Exit(check(AgeingOptions(list(names or []), before, after, seed, kind, out)))
