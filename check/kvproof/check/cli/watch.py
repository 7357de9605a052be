"""`kvproof watch`: judge the block managers of a command while it runs, in a process beside it."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvproof.check.cli.options import DigestKeyOption
from kvproof.check.runs.errors import UsageError, error_boundary
from kvproof.spec.verdict import Exit

if TYPE_CHECKING:
    from kvproof.check.recording.watching import JudgeProcess

DEFAULT_OUT = Path(".kvproof/watch")
LOCAL = "127.0.0.1"
PORT_MAX = 65_535
REASONS = {
    Exit.OK: "no finding",
    Exit.REFUTED: "there is a finding",
    Exit.INCONCLUSIVE: "a manager was not judged to its end",
    Exit.NOTHING_CHECKED: "nothing was judged",
}


class OnFinding(StrEnum):
    """What happens at a finding."""

    log = "log"
    dump = "dump"
    stop = "stop"


def watch(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="A command; its managers are judged.")],
    on_finding: Annotated[
        OnFinding,
        typer.Option(
            "--on-finding",
            help="log: print it and go on; dump: also keep the whole recording; stop: end the command with SIGTERM.",
        ),
    ] = OnFinding.log,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus; 0 takes a free port."),
    ] = None,
    shows_pool: Annotated[
        bool, typer.Option("--shows-pool", help="Also judge refcounts and free lists with every line; slow.")
    ] = False,
    digest_key: DigestKeyOption = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder for the last lines before a finding.")
    ] = DEFAULT_OUT,
) -> None:
    """Judge the block managers of a command while it runs, and report the first line that no rule explains.

    Every Python process of the command records its managers as with `kvproof record`. A process beside it judges the
    lines, and the command never waits for it. The exit code is that of the command, but if that is 0 or the finding
    stopped the command: 1 after a finding, 4 if a manager was not judged to its end, 5 if no call was judged. If the
    judge itself ends early, that is printed once and the command goes on unwatched. Messages go to standard error.
    """
    with error_boundary():
        raise typer.Exit(_watched(command, on_finding, metrics, shows_pool, digest_key, out))


def _watched(
    command: list[str], on_finding: OnFinding, metrics: str | None, shows_pool: bool, digest_key: str | None, out: Path
) -> int:
    import shutil

    from kvproof.check.hosts.interrupt import calling_at_sigterm
    from kvproof.check.hosts.program import Running, started
    from kvproof.check.recording.import_hook import environment, is_recorded
    from kvproof.check.recording.recording_file import RecordingRefused
    from kvproof.check.recording.watching import WATCHED_NAME, JudgeProcess

    if is_recorded():
        raise UsageError("this process is being recorded by kvproof already, so its commands are, too")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]} cannot be run: there is no such program")
    running: list[Running] = []
    stopped = False

    def stop() -> None:
        for process in running:
            process.terminate()

    def stop_at_finding() -> None:
        nonlocal stopped
        if any(process.poll() is None for process in running):
            stopped = True
            _say("SIGTERM is sent to the command (--on-finding stop)")
            stop()

    try:
        judge = JudgeProcess(out, on_finding.value, None if metrics is None else _address(metrics), stop_at_finding)
    except RecordingRefused as error:
        raise UsageError(str(error)) from error
    if judge.address:
        _say(f"metrics: {judge.address}")
    try:
        with calling_at_sigterm(stop):  # who ends this command, ends the watched one
            variables = environment(judge.live / WATCHED_NAME, shows_pool, digest_key, True)
            running.append(started(command, environment=variables))
            code = running[0].wait()
    except OSError as error:
        judge.end()
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}") from error
    is_whole = judge.end()
    found = _verdict(judge, is_whole)
    ended = _ending(code, stopped)
    _say(f"{ended}; {_watched_lines(judge)}" if is_whole else ended)
    if code == 0 or (on_finding is OnFinding.stop and found is Exit.REFUTED):
        code, reason = found, REASONS[found]
    else:
        code, reason = code if code > 0 else 128 - code, "that of the command"
    if code != Exit.OK or found != Exit.OK:
        _say(f"exit code {int(code)}: {reason}")
    return code


def _verdict(judge: "JudgeProcess", is_whole: bool) -> Exit:
    """The exit code by what the judge reported. is_whole: it came to its end."""
    done = judge.last
    if judge.findings:
        return Exit.REFUTED
    if not is_whole or done.num_unjudged:
        return Exit.INCONCLUSIVE
    if not done.num_lines:
        return Exit.NOTHING_CHECKED
    return Exit.INCONCLUSIVE if done.num_refused else Exit.OK


def _ending(code: int, stopped: bool) -> str:
    """How the command ended, as a sentence. code: as `subprocess` has it. stopped: by a finding."""
    from kvproof.check.hosts.program import how_it_ended

    return f"the command {'was stopped at the finding and ' if stopped else ''}{how_it_ended(code)}"


def _watched_lines(judge: "JudgeProcess") -> str:
    """What the judge, which came to its end, has read and found."""
    from kvproof.check.protocol.operations import count

    done = judge.last
    refused = f"{count(done.num_refused, 'manager')} could not be recorded" if done.num_refused else ""
    if not done.num_recordings:
        why = refused or "no Python process of it created a block manager"
        return f"nothing was watched, because {why}"
    watched = f"{done.num_lines:,} lines of {count(done.num_recordings, 'manager')} were judged"
    if done.num_findings:
        lines = f"; the last lines before it: {', '.join(judge.last_lines)}" if judge.last_lines else ""
        return f"{watched}: {count(done.num_findings, 'finding')}{lines}"
    if done.num_unjudged or refused:
        return f"{watched}, but {refused or 'not to the end'}"
    return f"{watched}: consistent" if done.num_lines else watched


def _address(text: str) -> tuple[str, int]:
    """Host and port of `[HOST:]PORT`. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise UsageError(f"--metrics {text}: write PORT or HOST:PORT, with a port from 0 to {PORT_MAX:,}")
    return host or LOCAL, int(port)


def _say(text: str) -> None:
    import sys

    print(f"kvproof: {text}", file=sys.stderr, flush=True)
