"""A subprocess that tries to import a user's executor, and little else.

It lies here because the package of the executors imports torch, which takes a second. It is started as a module, with
the name of the function and a file descriptor. It writes the reason to the descriptor if the function cannot be
imported, and nothing if it can.
"""

import os
import sys

from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import own


def main(name: str, answer: int) -> None:
    """Try to import the function, and write the reason if that fails."""
    try:
        own(name, "function")
    except UnknownSubject as error:
        os.write(answer, str(error).encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
