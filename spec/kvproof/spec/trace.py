"""A run as data: what a counterexample is saved as, and read back from.

An operation is its name and its arguments, in values that JSON has. Operations that are not enabled when a trace is
replayed are passed over, so every subsequence of a trace is a trace; this is what makes shrinking simple.
"""

import re
from dataclasses import dataclass, field
from typing import Any

TRACE_SCHEMA_VERSION = 1

Operation = tuple[Any, ...]  # name, arguments

ANSWER = re.compile(r"can_\w+\([^)]*\) sa(id|ys) ")  # how a text about the answer of a question begins
OURS = "kvproof"  # how the names of its own subjects begin
NO_ANSWER = "no answer within"  # in a text about a call that did not return
IN_TABLE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*(==[A-Za-z0-9]+([.!+_-][A-Za-z0-9]+)*)?")


def names_code(subject: str) -> bool:
    """Whether the name of a subject itself says which code runs: a command (`pipe:...`), a module or a file.

    Any other name, such as `vllm-v1==0.33.0`, is only looked up in kvproof's own table.
    """
    return IN_TABLE.fullmatch(subject) is None


def is_ours(subject: str) -> bool:
    """Whether the name is that of a subject of kvproof itself."""
    return not names_code(subject) and subject.partition("==")[0].partition("-")[0] == OURS


@dataclass(frozen=True)
class CodePlace:
    """A line of a subject's code. function: such as `BlockManager.fork`. file: relative to the working folder if it
    lies in it."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} of {self.file}:{self.line}"


@dataclass(frozen=True)
class EnteredCode:
    """A function of a subject's code that a call entered: from its first line to its last one.

    changed: of these, the lines that differ from `Trace.base`.
    """

    function: str
    file: str
    line: int
    last_line: int
    changed: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class EarlierChange:
    """A call that changed what the subject shows, before the call that the finding is about.

    step: the number of its operation, from 1. call: as the protocol names it.
    """

    step: int
    call: str


@dataclass
class Trace:
    """A counterexample.

    config: the fields of the configuration that the subject was opened with. operations: in order; the last one is
    where the property broke. text: what broke, where exactly. steps: one line for each operation, for people. method:
    the method of the manager that was called when it broke, where it is defined; None if it is not known. frames: if
    the manager raised an exception or did not return, the last lines of its code that were executed, the innermost one
    last. earlier: if a call before that one made the change that is wrong; `method` is then of that call. entered: the
    innermost functions that the call of `method` entered, without `method` itself unless its lines have changed. base:
    the revision with which the code was compared; empty if it was not.
    """

    subject: str
    property: str
    text: str
    config: dict[str, Any]
    operations: list[list[Any]]
    judge: str = ""
    seed: int = 0
    num_operations_before: int = 0
    steps: list[str] = field(default_factory=list)
    version: str = ""
    method: CodePlace | None = None
    frames: list[CodePlace] = field(default_factory=list)
    earlier: EarlierChange | None = None
    entered: list[EnteredCode] = field(default_factory=list)
    base: str = ""
    schema_version: int = TRACE_SCHEMA_VERSION


def is_about_a_hang(trace: Trace) -> bool:
    """Whether a call did not return in time."""
    return NO_ANSWER in trace.text


def is_about_an_answer(trace: Trace) -> bool:
    """Whether the method of a trace answered a question wrongly; an exception is then that of the call after it."""
    return ANSWER.match(trace.text) is not None
