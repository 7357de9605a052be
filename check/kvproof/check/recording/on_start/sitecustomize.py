"""Run by every Python process of a recorded command, before its program."""

import sys

try:
    from kvproof.check.recording.import_hook import install, run_shadowed
except ImportError:
    print(f"kvproof: {sys.executable} has no kvproof installed; nothing is recorded", file=sys.stderr)
else:
    install()
    run_shadowed(__file__)
