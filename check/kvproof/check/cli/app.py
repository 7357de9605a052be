"""The `kvproof` command with its subcommands. Every command uses the exit codes of `kvproof.spec.verdict.Exit`."""

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import typer

from kvproof.check.cli.baseline import baseline
from kvproof.check.cli.campaign import campaign
from kvproof.check.cli.config import ANY_ARGUMENTS, config, configure, require_effective
from kvproof.check.cli.corpus import corpus
from kvproof.check.cli.device import devices
from kvproof.check.cli.examples import examples
from kvproof.check.cli.explore import explore
from kvproof.check.cli.faults import faults, faults_command
from kvproof.check.cli.gate import gate
from kvproof.check.cli.groups import Grouped
from kvproof.check.cli.history import compare, history
from kvproof.check.cli.hunt import hunt
from kvproof.check.cli.init import init
from kvproof.check.cli.own_process import is_apart, of_the_user
from kvproof.check.cli.prove import prove
from kvproof.check.cli.record import record
from kvproof.check.cli.replay import bisect, replay
from kvproof.check.cli.report import report
from kvproof.check.cli.subjects import engines, subjects
from kvproof.check.cli.validate import validate
from kvproof.check.cli.verify import verify
from kvproof.check.cli.watch import watch
from kvproof.check.runs.errors import discard, error_boundary, fail, lost_output
from kvproof.spec.verdict import Exit

EXIT_CODES = (
    "Exit codes: 0 ok, 1 refuted, 2 usage, 3 internal error, 4 inconclusive, 5 nothing checked, "
    "6 worse than the baseline, 130 interrupted before anything was decided."
)

app = typer.Typer(
    name="kvproof",
    cls=Grouped,
    help=f"Check whether a paged KV-cache block manager is correct, and show the shortest run that proves it wrong.\n\n"
    f"{EXIT_CODES}",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
IN_SHORT: dict[Callable[..., None], str] = {  # the lines of `kvproof --help`, each at most 64 characters
    init: "Write an adapter to fill in, a test, a configuration, CI.",
    verify: "Check one subject with every judge: the gate for CI.",
    prove: "Prove the specification for every size.",
    explore: "Search every state of one small scope.",
    hunt: "Search for counterexamples, and report the shortest of each kind.",
    gate: "Report what a change in git adds, repairs and leaves.",
    campaign: "Hunt in many subjects, releases and configurations.",
    replay: "Replay counterexamples; report FIXED, FAILED or ERROR.",
    bisect: "Find the releases in which a counterexample fails.",
    record: "Record the calls and answers of a live block manager.",
    validate: "Check recordings of live block managers.",
    watch: "Judge the block managers of a program while it runs.",
    faults_command(): "Plant faults, and report which judge notices each.",
    subjects: "List what --subject accepts.",
    history: "Show recorded runs: findings over time, flaky ones, speeds.",
    compare: "Compare two results, or two runs of the history.",
    report: "Write and print the reports of a stored run again.",
    examples: "List the examples, or copy them to a folder.",
    config: "Print the options in force here, and where each comes from.",
}
for command, in_short in IN_SHORT.items():
    takes = ANY_ARGUMENTS if command in (config, faults) else None
    app.command(short_help=in_short, context_settings=takes)(command)
app.add_typer(devices, name="device", short_help="Check the bytes and the speed of swaps and copies here.")
app.add_typer(engines, name="engines", short_help="Bring releases of engines, and check newer ones.")
app.add_typer(corpus, name="corpus", short_help="Real faults of engines as data, shown both ways, with a score.")
app.add_typer(baseline, name="baseline", short_help="Accept a result: later runs must not be worse.")


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
    if not context.resilient_parsing:
        with error_boundary():
            require_effective()
    configure(context)


def _open_closed_streams() -> None:
    """Open standard streams that the caller has closed (`>&-`): what is written to them is lost.

    Otherwise the next file would get the number of the stream, and a message of another process would be written to it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number, which is this one
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 (open as long as the process)


def main() -> None:
    """Entry point of the `kvproof` command."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a character that the terminal cannot show must not end the command
    try:
        os.getcwd()
    except OSError as error:
        fail(f"the working folder cannot be used ({error.strerror}); change to another one", Exit.USAGE)
        sys.exit(Exit.USAGE)
    try:
        try:
            with of_the_user(sys.argv[1:]):
                app()
        except SystemExit as done:
            if isinstance(done.__context__, BrokenPipeError):  # click ends then as a refutation does
                raise done.__context__ from None
            if done.code == Exit.INTERRUPTED and not is_apart():
                fail("interrupted", Exit.INTERRUPTED)
            raise
        finally:
            sys.stdout.flush()
    except OSError as error:  # from --help or --version; `error_boundary` handles those of the commands
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            sys.exit(Exit.INCONCLUSIVE)
        sys.exit(lost_output(error).exit_code)


if __name__ == "__main__":
    main()
