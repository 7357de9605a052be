"""The `kvproof` command with its subcommands. Every command uses the exit codes of `kvproof.spec.verdict.Exit`."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from kvproof.check.cli.baseline import baseline
from kvproof.check.cli.config import ANY_ARGUMENTS, config, configure
from kvproof.check.cli.device import device
from kvproof.check.cli.examples import examples
from kvproof.check.cli.explore import explore
from kvproof.check.cli.faults import faults
from kvproof.check.cli.hunt import hunt
from kvproof.check.cli.init import init
from kvproof.check.cli.prove import prove
from kvproof.check.cli.record import record
from kvproof.check.cli.replay import bisect, replay
from kvproof.check.cli.report import report
from kvproof.check.cli.subjects import engines, subjects
from kvproof.check.cli.validate import validate
from kvproof.check.cli.verify import verify
from kvproof.check.runs.errors import discard, lost_output
from kvproof.spec.verdict import Exit

EXIT_CODES = (
    "Exit codes: 0 ok, 1 refuted, 2 usage, 3 internal error, 4 inconclusive, 5 nothing checked, "
    "6 worse than the baseline, 130 interrupted before anything was decided."
)

app = typer.Typer(
    name="kvproof",
    help=f"Check whether a paged KV-cache block manager is correct, and show the shortest run that proves it wrong.\n\n"
    f"{EXIT_CODES}",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    init,
    verify,
    prove,
    explore,
    hunt,
    replay,
    bisect,
    record,
    validate,
    device,
    faults,
    subjects,
    report,
    examples,
):
    app.command()(command)
app.command(context_settings=ANY_ARGUMENTS)(config)
app.add_typer(engines, name="engines")
app.add_typer(baseline, name="baseline")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from kvproof.check.runs.run import version

        print(f"kvproof {version()}")
        raise typer.Exit


@app.callback()
def kvproof(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that come before the command."""
    configure(context)


def main() -> None:
    """Entry point of the `kvproof` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a character that the terminal cannot show must not end the command
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError as error:  # from --help or --version; `error_boundary` handles those of the commands
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            sys.exit(Exit.INCONCLUSIVE)
        sys.exit(lost_output(error).exit_code)


if __name__ == "__main__":
    main()
