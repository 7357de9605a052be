"""`kvproof device` in a process of its own, if an executor of the user may run on a CUDA device or a simulated one.

Such an executor works on tensors of kvproof, in the process of kvproof, and can end it. So the command runs again in
another process (`own_process`). If that ends without an exit code in its record, the executor ended it, and that
refutes the executor. What the run had decided before is in the result folder.
"""

from collections.abc import Sequence
from pathlib import Path

import typer

from kvproof.check.cli.config import options_to_repeat
from kvproof.check.cli.own_process import run_again
from kvproof.check.hosts.program import how_it_ended
from kvproof.check.runs.errors import UsageError, fail
from kvproof.spec.verdict import Exit


def run_apart(
    context: typer.Context, executors: Sequence[str], out: Path, json: Path | None, history: Path | None
) -> int:
    """Run the command in another process, and return its exit code. executors: those of the user.

    Raises UsageError if an executor ends the process as it is imported, KeyboardInterrupt if the process was ended by a
    signal that was sent to this one.
    """
    ended = run_again(["device", *options_to_repeat(context, frozenset())])
    last = ended.last
    if last is not None and last.code is not None:
        return last.code
    if last is not None and not last.work:
        raise UsageError(f"{', '.join(executors)}: the process that imported it {how_it_ended(ended.code)}")
    work = "" if last is None else last.work
    guilty = next((name for name in executors if work.startswith(f"{name}: ")), executors[0])
    text = f"{work or guilty}: the executor crashed: its process {how_it_ended(ended.code)}"
    return _refute(guilty, text, out, json, history)


def _refute(executor: str, text: str, out: Path, json: Path | None, history: Path | None) -> int:
    """Add the finding to the result that the process has left, and write the reports again."""
    from kvproof.check.runs.data_plane_stage import JUDGE, SWAPS
    from kvproof.check.runs.history import add_to_history
    from kvproof.check.runs.json_output import document_to
    from kvproof.check.runs.run import write_json
    from kvproof.check.runs.store import RESULT, Store
    from kvproof.check.runs.terminal import output
    from kvproof.reports.document import DocumentError, read
    from kvproof.reports.evidence import FailedCase, refuted
    from kvproof.reports.result import Result

    id = f"{JUDGE}/{SWAPS}/{executor}"
    try:
        result = read(out / RESULT, Result)
    except DocumentError as error:
        raise fail(f"refuted: {id}: {text}; {error}", Exit.REFUTED) from error
    result.checks = [
        refuted(check, FailedCase(text, executor)) if check.id == id and not check.is_failure else check
        for check in result.checks
    ]
    store = Store(out)
    store.write_all(result)
    store.write_device_page(result)
    if json is not None:
        with document_to(json):
            write_json(result, out, json)
    fail(f"refuted: {id}: {text}; what was decided before is in {out / RESULT}", Exit.REFUTED)
    add_to_history(history, result, Exit.REFUTED, output())
    return Exit.REFUTED
