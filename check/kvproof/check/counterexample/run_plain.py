"""Run a script in a process that cannot import kvproof, and say whether it fails by its own assertion.

`run_plain SUBJECT SCRIPT FOLDER...`: further folders of the path. With a SUBJECT, the modules of an engine that its
adapter imports are there, because the engine itself is not installed; without one, this file is started by its path.
"""

import runpy
import sys
import traceback

ASSERTED, RAISED = 10, 11  # exit codes: its own assertion failed, anything else was raised


class Absent:
    """Finds no kvproof, although it may be installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for kvproof; find nothing else."""
        if name.partition(".")[0] == "kvproof":
            raise ModuleNotFoundError("No module named 'kvproof'", name="kvproof")


def main(subject: str, script: str, folders: list[str]) -> int:
    """Run the script. Returns the exit code."""
    if subject:
        from kvproof.check.subjects.registry import find

        find(subject)()
    else:
        sys.meta_path.insert(0, Absent())
    sys.path[:0] = folders
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        print(f"{type(error).__name__}: {error}".partition("\n")[0], file=sys.stderr)
        return ASSERTED if type(error) is AssertionError and last.filename == script else RAISED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
