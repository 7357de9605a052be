"""How a process has ended, in words, and how long is waited for a process to end."""

import signal

LAST_WORDS_SECONDS = 0.5  # for a program whose input has ended to write the rest, and to end
BY_ITSELF_SECONDS = 2.0  # for a process whose connection has ended, or whose work is over
KILLED_SECONDS = 10.0  # for a process that was killed, or that first ends what it has started


def how_it_ended(code: int) -> str:
    """The exit code of a process in words; a negative one is the signal that killed it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"
