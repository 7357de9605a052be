"""How much of the subject's code its walks ran: each function and line of the files that were entered at all.

A file is read and compiled to know its functions and their lines, and is not executed. The body of a module or a class
ran when it was imported, so it is not counted.
"""

import sys
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType

from kvproof.check.counterexample.keeping import without_home
from kvproof.check.protocol.adapter_fault import shown
from kvproof.check.search.lines_run import IS_REPORTED
from kvproof.check.search.result import Lines
from kvproof.reports.document import DocumentError, read_bytes
from kvproof.reports.result import CodeFile, PartlyRun, SubjectCode
from kvproof.spec.trace import CodePlace

TOO_OLD = "which lines of the subject ran is not known before Python 3.12; this is Python {}.{}"
NOT_SEEN = "which lines of the subject ran is not known: no Python code of it was seen"
BYTES_MAX = 4 << 20  # of a file


def code_reached(lines: Lines, num_operations: int, subject: str = "") -> SubjectCode:
    """What ran of the subject's code in so many operations. lines: that ran. subject: its name."""
    if not IS_REPORTED:
        return SubjectCode(num_operations, TOO_OLD.format(*sys.version_info))
    files = [one for file, ran in lines.items() if (one := _file(file, {*ran}, subject)) is not None]
    return SubjectCode(num_operations, "" if files else NOT_SEEN, files)


def _file(file: str, ran: set[int], subject: str) -> CodeFile | None:
    """What ran of one file; None if it cannot be read as Python."""
    try:
        code = compile(read_bytes(Path(file), BYTES_MAX), file, "exec", dont_inherit=True)
    except (DocumentError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [(one, _lines_of(one)) for one in _functions_in(code)]
    found = CodeFile(without_home(CodePlace("", shown(file), 0), subject).file, len(functions))
    for one, lines in functions:
        found.num_entered += one.co_firstlineno in ran
        found.num_lines += len(lines)
        found.num_run += len(lines & ran)
        if missing := sorted(lines - ran):
            name = one.co_qualname.rpartition("<locals>.")[2]
            found.partly.append(PartlyRun(name, one.co_firstlineno, missing, one.co_firstlineno in ran))
    return found


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """The functions that are defined in a code, and in classes and functions of it."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & CO_OPTIMIZED and not one.co_name.startswith("<"):
                yield one
            yield from _functions_in(one)


def _lines_of(code: CodeType) -> set[int]:
    """The lines of a function that can run, with those of comprehensions and lambdas in it, but not its `def`."""
    own = {line for _, _, line in code.co_lines() if line}
    inner = (one for one in code.co_consts if isinstance(one, CodeType) and one.co_name.startswith("<"))
    lines = own.union(*map(_lines_of, inner))
    return lines - {code.co_firstlineno} or lines
