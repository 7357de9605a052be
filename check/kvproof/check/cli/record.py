"""`kvproof record`: write the calls and answers of a block manager to a file for `kvproof validate`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.check.cli.options import DigestKeyOption, SeedOption, settled_seed
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.verdict import Exit

DEFAULT_FILE = Path("recording.jsonl")
NUM_STEPS_MAX = 10**9


def record(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="A command; its block managers are recorded.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="S", help="Instead of a command: a subject of `kvproof subjects`."),
    ] = None,
    steps: Annotated[
        int,
        typer.Option("--steps", metavar="N", min=1, max=NUM_STEPS_MAX, help="Operations in the run of the subject."),
    ] = 1000,
    seed: SeedOption = None,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="NAME=VALUE", help="Fix a field of the subject's configuration."),
    ] = None,
    shows_pool: Annotated[
        bool, typer.Option("--shows-pool", help="Also store refcounts and free lists with every line; slow.")
    ] = False,
    digest_key: DigestKeyOption = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="The recording; an earlier recording of this name is replaced."),
    ] = (DEFAULT_FILE),
) -> None:
    """Record the calls and answers of a live block manager; `kvproof validate FILE` judges the recording.

    Give a command after --. Every Python process that it starts records each block manager of vLLM V0, vLLM V1 or
    kvproof, each manager of vLLM's offloading to host memory, and each paged cache of transformers' continuous batching
    that it creates, from its creation. The first manager is recorded to FILE, the second to FILE-2, and so on; a number
    that a file has already is left out. kvproof must be installed in that Python. The exit code is that of the command,
    but if the command succeeds, 5 if nothing was recorded, and 4 if a manager was not, or not to its end. Two lines in
    your own process do the same without environment variables: `from kvproof.check.recording import record`,
    `record(manager, FILE)`.

    With --subject, one of kvproof's own subjects is driven in this process, with a configuration drawn from the seed.
    This makes an example, and serves as a check in a CI.
    """
    with error_boundary():
        if bool(command) == (subject is not None):
            raise UsageError("nothing to record: give either a command after --, or --subject")
        if command:
            raise typer.Exit(_recorded_command(command, out, shows_pool, digest_key))
        _recorded_subject(str(subject), settled_seed(seed), steps, fix or [], out, shows_pool, digest_key)


def _recorded_command(command: list[str], out: Path, shows_pool: bool, digest_key: str | None) -> int:
    import shlex
    import shutil

    from kvproof.check.hosts.program import finished_at_terminal
    from kvproof.check.recording.import_hook import environment, is_recorded, numbered
    from kvproof.check.recording.recording_file import RecordingRefused, State, require_replaceable, state_of
    from kvproof.check.recording.segments import wait_until_written
    from kvproof.check.runs.store import explained
    from kvproof.check.runs.terminal import output, say

    if is_recorded():
        raise UsageError("this process is being recorded by kvproof already, so its commands are, too")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} cannot be run: there is no such program")
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            require_replaceable(out)
        except RecordingRefused as error:
            raise UsageError(str(error)) from error
        out.unlink(missing_ok=True)
        earlier = set(numbered(out))
    try:
        code = finished_at_terminal(command, environment(out, shows_pool, digest_key))
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    console = output()
    written = [path for path in (out, *numbered(out)) if path.exists() and path not in earlier]
    wait_until_written(written)
    states = {path: state_of(path) for path in written}
    recorded = [str(path) for path, state in states.items() if state is not State.EMPTY]
    if recorded:
        say(console, f"recorded: {', '.join(recorded)}; judge with: kvproof validate {shlex.join(recorded)}")
    elif not written:
        say(console, "nothing was recorded: no Python process of the command created a block manager")
    for path, state in states.items():
        if state is not State.WHOLE:
            say(console, f"{path}: {state.value}")
    if not code:
        is_whole = all(state is State.WHOLE for state in states.values())
        code = Exit.NOTHING_CHECKED if not recorded else Exit.OK if is_whole else Exit.INCONCLUSIVE
    return code if code >= 0 else 128 - code


def _recorded_subject(
    name: str, seed: int, steps: int, fix: list[str], out: Path, shows_pool: bool, digest_key: str | None
) -> None:
    from kvproof.check.recording.example_run import record_run
    from kvproof.check.recording.recording_file import RecordingRefused
    from kvproof.check.runs.arguments import factory_of, fixed_fields
    from kvproof.check.runs.terminal import output, say

    make, _ = factory_of(name, isolation=False)
    fixed: dict[str, Any] = {"cross": False, **fixed_fields(fix)}
    key = digest_key.encode() if digest_key else None
    try:
        done = record_run(make, seed, steps, out, fixed, shows_pool=shows_pool, digest_key=key)
    except RecordingRefused as error:
        raise UsageError(str(error)) from error
    console = output()
    settings = ", ".join(f"{field} {value}" for field, value in done.config.as_dict().items())
    say(console, f"{name}, seed {seed}: {done.num_operations:,} operations, {settings}")
    if done.finding is not None:
        say(console, f"the run ended with a finding: {done.finding.property}: {done.finding.text}")
    say(console, f"recorded: {out}, {done.num_lines:,} lines; judge it with: kvproof validate {out}")
