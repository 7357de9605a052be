"""Text that a subject or a file supplied, as it may be printed to a terminal, a log of a CI run, or a text report.

A subject may answer with anything: control sequences that clear a terminal or forge its title, characters that turn the
direction of text, lines that GitHub's runner takes for commands (`::error::`, `##[error]`), or a table of a million
entries. All of it is shown, as escapes or cut, and nothing of it acts. The trace file has the text as it was.
"""

import re
from functools import lru_cache

# Control characters but tab and newline, what changes the direction or ends a line unseen, and halves of characters.
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
COMMAND = re.compile(r"^([^\S\n]*:)(?=:)|(#)(?=#\[)", re.MULTILINE)
TEXT_MAX = 20_000  # characters of one line
LONG_LIST = re.compile(r"(?<!\d)-?\d+(?:(?:, | )-?\d+){23,}")
NUMBERS_SHOWN = 8  # of a long list


def printable(text: str) -> str:
    """The text with escapes for the characters that act, and a space in what a CI runner would take for a command."""
    return COMMAND.sub(lambda found: f"{found[0]} ", ACTING.sub(lambda found: repr(found[0])[1:-1], text))


@lru_cache(maxsize=4)  # every report and every write of the result asks for the texts of the findings again
def cut(text: str) -> str:
    """The text as a report shows it; the trace has a finding whole.

    Of a long list of numbers, such as the tokens of a prompt or a table, the first ones are shown. A text that is too
    long nevertheless ends after its beginning.
    """
    text = LONG_LIST.sub(_beginning, text)
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… (cut here; it has {len(text):,} characters)"


def _beginning(found: re.Match[str]) -> str:
    separator = ", " if ", " in found[0] else " "
    numbers = found[0].replace(",", "").split()
    return f"{separator.join(numbers[:NUMBERS_SHOWN])}{separator}… ({len(numbers) - NUMBERS_SHOWN:,} more)"
