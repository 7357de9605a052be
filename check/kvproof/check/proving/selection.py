"""Which names the patterns of `kvproof prove --only` select.

A name is `suite/subject/claim`. A pattern is a name, the beginning of a name up to a slash, or has wildcards.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase


class Selection:
    """The names that some patterns select, and which patterns have matched no name so far.

    Without patterns, every name is selected.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self.unmatched = list(self.patterns)

    def has(self, name: str) -> bool:
        """Whether the name is selected. The patterns that match it count as matched from now on."""
        matching = [pattern for pattern in self.patterns if matches(name, pattern)]
        self.unmatched = [pattern for pattern in self.unmatched if pattern not in matching]
        return not self.patterns or bool(matching)

    def may_have(self, suite: str) -> bool:
        """Whether a name in that suite may be selected."""
        return not self.patterns or any(may_be_in(suite, pattern) for pattern in self.patterns)

    def may_have_any_of(self, suite: str, subject: str) -> bool:
        """Whether a name of that subject may be selected; its obligations need not be made otherwise."""
        return not self.patterns or any(_may_match(f"{suite}/{subject}/", pattern) for pattern in self.patterns)


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern is the name, the beginning of it up to a slash, or matches it with wildcards."""
    return name == pattern or name.startswith(f"{pattern}/") or fnmatchcase(name, pattern)


def may_be_in(suite: str, pattern: str) -> bool:
    """Whether a pattern may match a name in that suite."""
    first = pattern.partition("/")[0]
    return first == suite or any(sign in first for sign in "*?[")


def _may_match(beginning: str, pattern: str) -> bool:
    """Whether a pattern may match a name with this beginning, which ends in a slash."""
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    literal = literal if literal != pattern else f"{pattern}/"
    return literal.startswith(beginning) or beginning.startswith(literal)
