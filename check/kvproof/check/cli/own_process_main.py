"""The process that `own_process` starts: the command, its exit code in the record, and the end.

It ends at once, without waiting for the threads and the exit handlers of the user's code.
"""

import os
import sys
from contextlib import suppress

from kvproof.check.cli.app import main
from kvproof.check.cli.own_process import open_record, report_end
from kvproof.spec.verdict import Exit

if __name__ == "__main__":
    sys.argv[0] = "kvproof"
    open_record(int(sys.argv.pop(1)))
    try:
        main()
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else Exit.OK
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    report_end(code)
    os._exit(code)
