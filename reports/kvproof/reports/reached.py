"""What a run reached of its subject, and above all what it did not: operations, functions and lines.

It is made from what the result counts anyway: the operations of each walk, the situations, and the code that ran.
"""

from collections.abc import Iterator

from kvproof.reports.counterexample import ranges
from kvproof.reports.result import OPERATIONS, Result, SubjectCode
from kvproof.reports.summary import number, work

OPERATIONS_ENOUGH = 5_000  # what a shorter walk does not reach says nothing
NAMED_MAX = 5  # functions that one line names


def not_reached(result: Result) -> str:
    """What no walk of the subject reached, in one line; empty after little work."""
    done = work(result)
    judges = {one.judge.removesuffix(OPERATIONS) for one in result.witnesses if one.judge.endswith(OPERATIONS)}
    num_operations = sum(done.get(judge, {}).get("operations", 0) for judge in judges)
    if num_operations < OPERATIONS_ENOUGH:
        return ""
    parts = [f"the operations {', '.join(names)}"] if (names := operations_not_done(result)) else []
    why = "" if result.code is None else result.code.why_unknown
    if result.code is not None and not why:
        parts += _code_not_run(result.code)
    if not parts:
        return why or f"reached in {num_operations:,} operations: every operation, function and line of the subject"
    return f"not reached in {num_operations:,} operations: {'; '.join([*parts, *([why] if why else [])])}"


def _code_not_run(code: SubjectCode) -> Iterator[str]:
    unentered = [one.function for file in code.files for one in file.partly if not one.is_entered]
    if unentered:
        num_functions = sum(file.num_functions for file in code.files)
        more = f" and {len(unentered) - NAMED_MAX} more" if len(unentered) > NAMED_MAX else ""
        named = f"{', '.join(unentered[:NAMED_MAX])}{more}"
        yield f"{len(unentered)} of {number(num_functions, 'function', 'functions')} of the subject ({named})"
    num_lines = sum(file.num_lines for file in code.files)
    if missing := num_lines - sum(file.num_run for file in code.files):
        yield f"{missing:,} of {number(num_lines, 'line', 'lines')} of the subject"


def operations_not_done(result: Result) -> list[str]:
    """The operations that the subject can do, and that no walk did."""
    mine = [one for one in result.witnesses if one.judge.endswith(OPERATIONS)]
    done = {one.name for one in mine if one.count}
    return [name for name in dict.fromkeys(one.name for one in mine) if name not in done]


def code_lines(result: Result) -> Iterator[str]:
    """What ran of each file of the subject, and the lines of each function that did not."""
    for name, sizes, rows in code_by_file(result):
        yield f"code: {name}: {sizes}"
        for function, line, what in rows:
            yield f"  {function} ({line}): {what}"


def code_by_file(result: Result) -> list[tuple[str, str, list[tuple[str, int, str]]]]:
    """Each file of the subject: how much of it ran, and of each function that did not run as a whole which lines."""
    return [
        (
            one.file,
            f"{one.num_entered:,} of {number(one.num_functions, 'function', 'functions')} and "
            f"{one.num_run:,} of {number(one.num_lines, 'line', 'lines')} ran",
            [
                (
                    part.function,
                    part.line,
                    f"lines {ranges(part.lines)} did not run" if part.is_entered else "never entered",
                )
                for part in one.partly
            ],
        )
        for one in (result.code.files if result.code else ())
    ]
