"""Where in the repository a finding lies, so that a pull request can be annotated there.

A trace names the code of the subject relative to the folder in which kvproof ran. A reader of the repository needs the
path from its root, which is the folder that holds `.git`. Code that is not in the repository, such as an installed
engine, has no place there.
"""

from pathlib import Path

from kvproof.spec.trace import CodePlace, Trace, is_about_an_answer


def repository_root(folder: Path) -> Path | None:
    """The folder that holds `.git`: this one or the nearest above it; None outside of a repository."""
    whole = folder.resolve()
    return next((place for place in (whole, *whole.parents) if (place / ".git").exists()), None)


def source_of(trace: Trace, folder: Path = Path()) -> CodePlace | None:
    """The line of the subject's code in which the run broke, with its path from the root of the repository.

    It is a line that the checkout changed, in the innermost function that the call entered; or else the innermost line
    of an exception that lies in the repository, or the method that was called; the method first if its answer was
    wrong. None if none is known. folder: the working folder; without a repository around it, the paths are relative to
    it.
    """
    root = repository_root(folder) or folder.resolve()
    changed = [CodePlace(one.function, one.file, one.changed[0]) for one in trace.entered if one.changed]
    places = [*reversed(trace.frames), trace.method]
    for place in (*changed, *(reversed(places) if is_about_an_answer(trace) else places)):
        if place is None:
            continue
        try:
            path = (folder / place.file).resolve()
            if path.is_file():
                return CodePlace(place.function, path.relative_to(root).as_posix(), place.line)
        except (ValueError, OSError):  # outside of the repository, a NUL, a name that is too long, a loop of links
            continue
    return None
