"""The result folder of a run: the result document, its reports, and the counterexamples.

`result.json` is replaced atomically after every finished check. A run that is interrupted or killed therefore leaves a
readable document with `is_complete` false. Counterexamples of earlier runs stay in the folder. While a run writes to a
folder, it holds a lock on it, so that two runs never mix their documents.
"""

import errno
import fcntl
import json
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.check.protocol.fault_attribution import FULL, lack_of
from kvproof.reports.device_page import PAGE, device_page
from kvproof.reports.document import DocumentError, encode, read_json, write_atomically
from kvproof.reports.junit import junit
from kvproof.reports.markdown import markdown
from kvproof.reports.result import Result
from kvproof.reports.run_page import RUN_PAGE, run_page
from kvproof.reports.sarif import sarif
from kvproof.reports.terminal import REPORT, plain_text
from kvproof.spec.verdict import Exit

RESULT = "result.json"
REPORTS: dict[str, Callable[[Result, Path], str | bytes]] = {
    "junit.xml": junit,
    "result.sarif": sarif,
    "summary.md": markdown,
    REPORT: plain_text,
    RUN_PAGE: run_page,
}
CRASHES = "crashes"
LOG = "fault.log"
LOCK = ".lock"

NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)
NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENOENT)


class StoreError(Exception):
    """The folder or a file in it cannot be used; the message says why. option: as for `UsageError`."""

    def __init__(self, message: str, exit_code: Exit = Exit.INTERNAL, option: str = "") -> None:
        super().__init__(message)
        self.exit_code, self.option = exit_code, option


class RenderError(StoreError):
    """A report could not be rendered; the others are written."""


def fault_of_kvproof(step: str, error: BaseException) -> str:
    """The message that a step of a run failed, and not by a fault of the subject. See `lack_of`."""
    if lack := lack_of(error):
        return f"{step} could not be done: {lack}"
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"{step} failed by a fault of kvproof, not of the subject: {what}"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError about `path` into a StoreError with one message and an exit code."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise StoreError(
                f"no space is left to write {path}; its previous content is kept. "
                "Free some space, or name another folder",
                Exit.INTERNAL,
            ) from error
        if error.errno in NOT_ALLOWED:
            raise StoreError(f"{path} cannot be written ({error.strerror}); name another path", Exit.USAGE) from error
        code = Exit.USAGE if error.errno in NOT_A_FOLDER else Exit.INTERNAL
        raise StoreError(f"{path} cannot be used: {error.strerror or error}", code) from error
    except ValueError as error:  # a NUL in the name
        raise StoreError(f"{str(path)!r} cannot be used: {error}", Exit.USAGE) from error


def require_no_link(path: Path) -> None:
    """Raise StoreError if a file or folder of a result is a symbolic link: somebody else may have made it.

    A document is replaced, with the link. A folder and a database are written in their place, wherever it is.
    """
    if path.is_symlink():
        raise StoreError(
            f"{path} is a symbolic link, and kvproof would write where it points; remove it, or name another folder "
            "with --out",
            Exit.USAGE,
        )


def in_use(folder: Path, process: str = "") -> str:
    """The message that a run cannot begin because another one writes to its folder. process: its id, if known."""
    who = f"another run of kvproof (process {process})" if process else "another run of kvproof"
    return f"{who} writes to {folder}; wait until it has ended, or name another folder with --out"


class Store:
    """One result folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.crashes = folder / CRASHES
        self._is_ours = False

    def claim(self) -> None:
        """Create the folder, and keep other runs out of it, unless that is done. Raises StoreError."""
        if self._is_ours:
            return
        try:
            with explained(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            self._require_ours()
            self._take()
            self._is_ours = True
        except StoreError as error:
            error.option = "out"
            raise

    def open(self, result: Result) -> None:
        """Claim the folder, and write the initial result. Raises StoreError.

        The page of the data plane of an earlier run is removed: this run writes its own, if it moves bytes.
        """
        self.claim()
        try:
            with explained(self.folder / PAGE):
                (self.folder / PAGE).unlink(missing_ok=True)
            with suppress(RenderError):  # it is reported when the run has something to write
                self.write_all(result)
        except StoreError as error:
            error.option = "out"
            raise

    def write_result(self, result: Result) -> None:
        """Write the result document only; the reports are rendered from it. Raises StoreError."""
        result.count_totals()
        with explained(self.folder / RESULT):
            write_atomically(self.folder / RESULT, encode(result))

    def write_all(self, result: Result) -> None:
        """Write the document and every report. Raises StoreError."""
        self.write_result(result)
        self.write_reports(result)

    def write_reports(self, result: Result) -> None:
        """Render every report again; one that fails does not keep the others from it. Raises StoreError."""
        failures = []
        for name, render in REPORTS.items():
            try:
                content = render(result, self.folder)
            except Exception as error:
                failures.append(fault_of_kvproof(name, error))
                continue
            with explained(self.folder / name):
                data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
                write_atomically(self.folder / name, data)
        if failures:
            raise RenderError("; ".join(failures))

    def write_device_page(self, result: Result) -> None:
        """Write the page of the data plane, if the run has one. Raises StoreError."""
        if result.data_plane is None:
            return
        try:
            content = device_page(result).encode("utf-8", "backslashreplace")
        except Exception as error:
            raise RenderError(fault_of_kvproof(PAGE, error)) from error
        with explained(self.folder / PAGE):
            write_atomically(self.folder / PAGE, content)

    def write_log(self, text: str) -> Path:
        """Write the traceback of a fault of kvproof, for a bug report. Raises StoreError."""
        path = self.folder / LOG
        with explained(path):
            write_atomically(path, text.encode("utf-8", "backslashreplace"))
        return path

    def _take(self) -> None:
        """Lock the folder until this process ends. Raises StoreError if another process holds the lock."""
        path = self.folder / LOCK
        with explained(path):
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process only, not of those that it forks
        except OSError as error:
            holder = os.read(lock, 20).decode("ascii", "replace").strip() or "?"
            os.close(lock)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return  # a file system without locks
            raise StoreError(in_use(self.folder, holder), Exit.USAGE) from error
        with explained(path):
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        weakref.finalize(self, os.close, lock)

    def _require_ours(self) -> None:
        """Refuse a folder in which files of the same names are not kvproof's. Raises StoreError."""
        require_no_link(self.crashes)
        present = [name for name in (RESULT, *REPORTS, PAGE) if (self.folder / name).exists()]
        if present and not self._holds_a_result():
            raise StoreError(
                f"{self.folder / present[0]} was not written by kvproof; name another folder with --out", Exit.USAGE
            )

    def _holds_a_result(self) -> bool:
        """Whether the folder holds a result document, of any version of kvproof."""
        try:
            document = json.loads(read_json(self.folder / RESULT))
        except (DocumentError, ValueError, RecursionError):
            return False
        return isinstance(document, dict) and {"schema_version", "run", "checks"} <= document.keys()
