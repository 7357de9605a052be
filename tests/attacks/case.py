"""One attack: a command on something hostile, how it must end, and what must hold however it ends.

Every run has a folder of its own for the attacked command, its temporary files and its caches. Afterwards no process of
the run is left, no file lies outside of the output folder, the output has no traceback, no control character and no
workflow command, kvproof blames itself for nothing, and a result that exists can be read.
"""

import gc
import os
import secrets
import signal
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.attacks.processes import MARK, left_after
from typer.testing import CliRunner

from kvproof.check.cli.app import app
from kvproof.reports.document import read
from kvproof.reports.result import Result

BUDGET_SECONDS = 12.0
ENOUGH_SECONDS = 150.0
BEYOND_SECONDS = 5.0  # after its budget; the time in which kvproof waits for a processor does not count
GONE_SECONDS_MAX = 10.0
PLACES = ("out", "cache", "tmp")
OK, REFUTED, USAGE = 0, 1, 2
UNREACHED = 4  # nothing is refuted, and so few operations do not reach everything
HELD = (OK, UNREACHED)


@dataclass(frozen=True)
class Attack:
    """What attacks, by name, and how the command must end.

    code: the exit code, or several if the machine decides. words: a part of the output. made: files that the attack
    itself leaves beside the output folder. budget: seconds that replace those of the catalogue, for an attack
    that needs much work: a busy machine does not do it in less. effort: operations that replace those of the
    catalogue, for an attack that lets a search reach less. judge: the one that replaces that of the catalogue, as does
    device.
    """

    name: str
    source: str
    code: int | tuple[int, ...]
    words: str = ""
    made: frozenset[str] = frozenset()
    budget: float = 0.0
    effort: int = 0
    judge: str = ""
    device: str = ""

    @property
    def codes(self) -> tuple[int, ...]:
        return self.code if isinstance(self.code, tuple) else (self.code,)


@dataclass(frozen=True)
class Outcome:
    """What a command did. faults: what must never be, and was."""

    code: int
    output: str
    faults: list[str]


def run(folder: Path, file: str, attack: Attack, arguments: Sequence[str]) -> Outcome:
    """Write the source of the attack to a file of the folder, and run `kvproof` with the arguments there.

    The command runs in this process, as starting one for each attack costs more than the attack.
    """
    if attack.budget:
        arguments = replaced(arguments, "--budget", str(attack.budget))
    if attack.effort:
        arguments = replaced(arguments, "--effort", str(attack.effort))
    if attack.judge:
        arguments = replaced(arguments, "--judges", attack.judge)
    if attack.device:
        arguments = replaced(arguments, "--device", attack.device)
    for place in PLACES:
        (folder / place).mkdir(exist_ok=True)
    (folder / file).write_text(attack.source, encoding="utf-8")
    mark, faults, waited = secrets.token_hex(8), list[str](), waited_seconds()
    with environment(folder, mark), written_to_stderr(folder / "cache" / "stderr"):
        done = CliRunner().invoke(app, [*arguments])
        code, output, error = done.exit_code, done.output, done.exception
        text = "" if error is None or isinstance(error, SystemExit) else "".join(traceback.format_exception(error))
        del done, error  # with the frames that hold the subject
        gc.collect()  # ends the processes of the subject, as the end of the command does
        left = left_after(mark, GONE_SECONDS_MAX)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    output += text + (folder / "cache" / "stderr").read_text(errors="backslashreplace")
    if text:
        faults.append("the output has a traceback of the command")
    if left:
        faults.append(f"{len(left)} processes are left")
    if foreign := {path.name for path in folder.iterdir()} - {*PLACES, file, "__pycache__", *attack.made}:
        faults.append(f"files were made outside of the output folder: {sorted(foreign)}")
    if left_files := sorted(path.name for path in (folder / "tmp").iterdir()):
        faults.append(f"temporary files are left: {left_files}")
    if "fault of kvproof" in output:
        faults.append("kvproof blames itself")
    if bad := sorted({one for one in output if ord(one) < 32 and one not in "\n\t\r"}):
        faults.append(f"the output has control characters: {bad}")
    if any(line.lstrip().startswith(("::", "##[")) for line in output.splitlines()):
        faults.append("the output has a workflow command")
    if (path := folder / "out" / "result.json").is_file() and not path.is_symlink():
        made = read(path, Result).run
        seconds = made.seconds - (waited_seconds() - waited)
        if is_apart(arguments):
            seconds = min(seconds, made.processor_seconds or seconds)
        if seconds > float(arguments[arguments.index("--budget") + 1]) + BEYOND_SECONDS:
            faults.append(f"the run took {seconds} s, without the time in which it waited for a processor")
    return Outcome(code, output, faults)


def is_apart(arguments: Sequence[str]) -> bool:
    """Whether the run is in another process, of which nothing says how long it waited for a processor."""
    return "--device" in arguments and arguments[arguments.index("--device") + 1] != "cpu"


def replaced(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """The arguments with this value of an option."""
    at = arguments.index(option) + 1
    return [*arguments[:at], value, *arguments[at + 1 :]]


def waited_seconds() -> float:
    """How long this thread has waited for a processor. Source: Linux, Documentation/scheduler/sched-stats.rst."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@contextmanager
def environment(folder: Path, mark: str) -> Iterator[None]:
    """Within the block, this process and those that it starts are in the folder, and have the environment of a run."""
    before, here, temporary = dict(os.environ), Path.cwd(), tempfile.tempdir
    places = {"XDG_CACHE_HOME": "cache", "TMPDIR": "tmp", "HOME": "."}
    os.environ.update({name: str(folder / place) for name, place in places.items()})
    os.environ.update({MARK: mark, "GITHUB_ACTIONS": "true"})
    os.chdir(folder)
    tempfile.tempdir = str(folder / "tmp")
    try:
        yield
    finally:
        tempfile.tempdir = temporary
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def written_to_stderr(path: Path) -> Iterator[None]:
    """Within the block, the descriptor of standard error writes to a file: a subject's output goes there directly."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
