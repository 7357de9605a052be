"""Asked in a process of its own: can this function be had? Imports the user's module, and little else of ours.

Started as a module with the name and a file descriptor, to which the reason goes if it cannot: nothing if it can.
"""

import os
import sys

from kvproof.check.subjects import UnknownSubject
from kvproof.check.subjects.own import own


def main(name: str, answer: int) -> None:
    """Write why not."""
    try:
        own(name, "function")
    except UnknownSubject as error:
        os.write(answer, str(error).encode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
