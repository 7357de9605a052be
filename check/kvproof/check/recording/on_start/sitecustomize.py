"""Run by every Python that a recorded command starts, before anything of its program."""

import sys

try:
    from kvproof.check.recording.import_hook import install, run_shadowed
except ImportError:
    print(f"kvproof: {sys.executable} has no kvproof installed; nothing of it is recorded", file=sys.stderr)
else:
    install()
    run_shadowed()
