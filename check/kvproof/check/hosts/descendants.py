"""No process is left behind: what a subject starts ends with its run, however the run ends.

A subject may start processes that leave its process group and its session, as daemons do. Three things find them:

- On Linux a process can become the parent of every descendant whose own parent has ended, and so see and end it. The
  fork server does this for the subjects that it forks. Other commands (a program behind a pipe, an executor) are
  started by a supervisor, which is this module as a script: it ends everything that the command started when the
  command ends, when kvproof asks, or when kvproof is gone.
- Each fork, and the command of a supervisor, asks to be killed when its parent ends.
- A subject can kill the process that adopts its daemons. So a mark in the environment also names the processes of one
  start (`marked`, `end_marked`).

Elsewhere only process groups are ended.
"""

import ctypes
import os
import secrets
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # of linux/prctl.h
PARENT_SECONDS = 0.5  # between two looks at whether the parent lives
NOT_STARTED = 127  # the exit code of a command that cannot be started, as in a shell
MARK = "KVPROOF_STARTED"
LOOKS_MAX = 20  # for processes with a mark; on a busy machine others end all the time
_ended = set[int]()  # processes that had ended when a mark was looked for, and that nobody has waited for


def _prctl(option: int, argument: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(argument), 0, 0, 0)


def adopt_descendants() -> None:
    """Let this process become the parent of each descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends. parent: the parent's id, before this process was forked."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended in between
        os._exit(0)


def children() -> set[int]:
    """The ids of the children of this process, of which the ended ones have not been waited for."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def may_be_child(pid: int, parent: int) -> bool:
    """Whether the process may be signalled as a child of the parent: it is one, or it has ended already.

    Source: proc(5), /proc/pid/stat: the name of the program, in parentheses, then the state and the parent.
    """
    if pid <= 1:  # not a process, but all of them, or those of this group
        return False
    if sys.platform != "linux":
        return True
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    return int(stat.rpartition(b")")[2].split()[1]) == parent


def end_children() -> None:
    """Kill the children of this process, and those that they leave to it, until there are none."""
    while strays := children():
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


# The mark -----------------------------------------------------------------------------------------------------------


def marked() -> tuple[str, dict[str, str]]:
    """A mark that no other start has, and the environment of this process with it."""
    mark = secrets.token_hex(8)
    return mark, {**os.environ, MARK: mark}


def end_marked(mark: str) -> None:
    """Kill the processes that have the mark in their environment.

    While they are looked for, one of them may start another and end, as a daemon is made. So they are looked for until
    each that has the mark or has ended was there before.
    """
    line, killed = f"{MARK}={mark}".encode(), set[int]()
    for _ in range(LOOKS_MAX):
        found, ended = _having(line)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        news = (found - killed) | (ended - _ended)
        killed |= found
        _ended.clear()
        _ended.update(ended)
        if not news:
            return


def _having(line: bytes) -> tuple[set[int], set[int]]:
    """The processes whose environment has the line, and those that have ended. Source: proc(5), /proc/pid/environ."""
    found, ended = set[int](), set[int]()
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = file.read_bytes()
        except PermissionError:
            continue
        except OSError:
            environment = b""
        if not environment:  # so are those of the kernel's own threads, which are always there
            ended.add(int(file.parent.name))
        elif line in environment.split(b"\0"):
            found.add(int(file.parent.name))
    return found, ended


# The supervisor -----------------------------------------------------------------------------------------------------


def supervise(lifeline: int, fails: int, parent: int, command: list[str]) -> None:
    """Run a command, and end as it does, after everything that it started.

    lifeline: a socket. When its other end is closed, or the process `parent` is gone, the command is ended. fails: a
    pipe. The error number is written to it if the command cannot be started; it is closed when the command runs.
    """
    adopt_descendants()
    woken, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for descriptor in (lifeline, fails):
        os.set_inheritable(descriptor, False)
    is_ready, readies = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    pid = os.fork()
    if not pid:
        os.close(readies)
        os.read(is_ready, 1)  # it may attack the supervisor, which must hold nothing of it then
        _become(command, supervisor, fails)
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides when this process ends
        signal.signal(number, signal.SIG_IGN)
    _close_all_but(lifeline, woken, waker)
    status = None
    while status is None and os.getppid() == parent:
        if lifeline in select.select([lifeline, woken], [], [], PARENT_SECONDS)[0]:
            break
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        status = _reaped(pid)
    if status is None:
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    end_children()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(supervisor, -code)
    os._exit(code)


def _become(command: list[str], supervisor: int, fails: int) -> None:
    try:
        end_with(supervisor)
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(fails, str(error.errno).encode())
    finally:
        os._exit(NOT_STARTED)


def _close_all_but(*kept: int) -> None:
    """Close every other descriptor: the command has its own copies, and their other ends wait for the last to go."""
    for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else map(str, range(256)):
        if int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _reaped(command: int) -> int | None:
    """Wait for the children that have ended. Returns the wait status of the command if it is one of them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == command:
                found = ended[1]
    return found


if __name__ == "__main__":
    supervise(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
