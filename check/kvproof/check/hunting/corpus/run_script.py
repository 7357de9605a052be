"""Run a script that shows a fault with an engine alone, in a process of its own: `run_script SUBJECT SCRIPT`.

What the subject's adapter imports of the release is all of the engine that is there, so that nothing of it needs to be
installed. A manager without releases has no subject (""), and is in a checkout, whose path follows the script's. As
with `python SCRIPT`, the folder of the script is on the path. The exit code is 1 if the fault shows, and 0 if it does
not; a script that raises has shown neither.
"""

import runpy
import sys
import traceback
from pathlib import Path

from kvproof.check.subjects.registry import find

NEITHER = 3


def main(subject: str, script: Path, arguments: list[str]) -> int:
    """Run the script on the release of the subject, or with these arguments. Returns the exit code."""
    if subject:
        find(subject)()
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script), *arguments]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as done:
        if isinstance(done.code, str):
            print(done.code)
        return NEITHER if isinstance(done.code, int) and done.code not in (0, 1) else 0 if not done.code else 1
    except Exception:
        traceback.print_exc()
        return NEITHER
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
