"""The command line: one file per command, and `app`, which holds them all."""

import sys


def main() -> None:
    """Entry point of the `kvproof` command. An interrupt while it imports its own parts ends it in one line, too."""
    try:
        from kvproof.check.cli import app

        app.main()
    except KeyboardInterrupt:
        print("kvproof: interrupted", file=sys.stderr)
        sys.exit(130)
