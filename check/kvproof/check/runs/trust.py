"""Which subject a file may name: a trace, or the progress of a hunt, never chooses the code that runs.

Such a file may come from anybody: from a pull request's artifact, from a bug report. A name of kvproof's table, with or
without a release, may come from a file. A command (`pipe:...`), a module, a file or the path of a checkout is code, and
is taken from a file only if the user said so: on the command line (`--subject`, `--trust`), in the text of a test, or
under `trusted_subjects` in the configuration of the repository (`runs/configuration.py`).
"""

import shlex
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from kvproof.check.runs.configuration import TRUSTED, find_configuration, in_folder, trusted_subjects
from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.registry import NAMED
from kvproof.spec.trace import names_code

REPLAY = "kvproof replay {file} --subject {subject}"


class UntrustedSubject(UnknownSubject):
    """A file names a subject that is code, and the user did not say that it may run."""


@dataclass(frozen=True)
class Trust:
    """What the user said about the subjects that files name.

    patterns: names that may come from a file; `*` and `?` stand for any characters. folder: where a trusted relative
    path is looked for. is_total: any name may come from a file. command: what to type, or to write in a test, to trust
    one file.
    """

    patterns: tuple[str, ...] = ()
    folder: Path = Path()
    is_total: bool = False
    command: str = REPLAY

    def subject_of(self, path: Path, name: str) -> str:
        """The subject that the file names, in the form in which it can be made. Raises UntrustedSubject."""
        if self.is_total:
            return found_above(path, name)
        row = NAMED.get(name.partition("==")[0])
        if not (names_code(name) or (row is not None and row.is_checkout)):
            return name
        if ".." not in PurePath(name).parts and any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return in_folder(name, self.folder)
        command = self.command.format(file=shlex.quote(str(path)), subject=shlex.quote(name), name=name)
        raise UntrustedSubject(
            f"{path} names the subject {name!r}, which is code, and kvproof runs no code because a file names it. "
            f"If you trust this code, type: {command}   (or list it in kvproof.toml under {TRUSTED})"
        )


def trust(folder: Path = Path(), is_total: bool = False, command: str = REPLAY) -> Trust:
    """What the configuration in force in the folder and the command line say. Raises DocumentError."""
    found = find_configuration(folder)
    return Trust(trusted_subjects(found), folder if found is None else found.folder, is_total, command)


def found_above(path: Path, name: str) -> str:
    """A subject `path/to/file.py:factory` is looked for in the working folder, then in each folder above the file."""
    return in_folder(name, Path(), *path.resolve().parents)
