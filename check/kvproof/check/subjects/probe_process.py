"""A subprocess that tries to import a user's executor, and little else.

It lies here because the package of the executors imports torch, which takes a second. It is started as a module, with
the name of the function and a file descriptor. It writes FOUND to the descriptor if the function can be imported, and
the reason if it cannot. It writes nothing if the import ends the process.
"""

import os
import sys

from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import own

FOUND = "found"


def main(name: str, answer: int) -> None:
    """Try to import the function, and write what came of it."""
    try:
        own(name, "function")
        os.write(answer, FOUND.encode())
    except UnknownSubject as error:
        os.write(answer, str(error).encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
