"""What commands print, word for word: one golden file per command, with one section per test.

A test that takes the fixture `command` runs commands with it, and compares records: exit codes, verdicts, properties,
files. Its sentences are compared after it has passed: `tests/golden/<command>.txt` has a section with the name of the
test, and this section is all that the command printed in it. So a sentence stands in one place, beside its neighbours.

    pytest --write-golden tests/check/cli/test_verify.py

writes the sections of these tests again. A test whose section was written fails, and passes the next time; the change
is read before it is committed. Nothing passes without its section, and `test_golden_files.py` finds the sections that
no test has. What differs from run to run, or from machine to machine, is replaced by `settled`.
"""

import re
import shlex
import sys
from collections import defaultdict
from difflib import unified_diff
from functools import partial
from pathlib import Path

from typer.main import get_command
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app

TESTS = Path(__file__).resolve().parent
GOLDEN = TESTS / "golden"
HEADING = "=== "
COMMANDS: frozenset[str] = frozenset(get_command(app).commands)  # type: ignore[attr-defined]
ENVIRONMENT = {"COLUMNS": "80", "CI": ""}  # the width of usage errors; no lines of progress every few seconds
VOLATILE = (
    (r"(?m)^(prover: .* open after \d+ s|faults: .* judged)\n", ""),  # every few seconds
    (r"\b\d+\.\d+ s\b", "N s"),
    (r"\bslowest N s, .*", "slowest N s, ..."),  # which proofs these are
    (r"\bsolver N s, effort [\d,]+", "solver N s, effort N"),  # of another release of the solver
    (r"(?m)^ [0-9a-f]{10} \d{4}-.*", " RUN ..."),  # a row of a history, with its time and speed
    (r"\b(kvproof/\S+\.py):\d+", r"\1:LINE"),
    (r"\brun [0-9a-f]{10}\b", "run RUN"),
    (r"\b([a-z]+(?:-[a-z]+)+)-[0-9a-f]{4}(?=[.:\s])", r"\1-DIGEST"),  # of a saved run, with the path of its subject
    (r"\b(test_[a-z_]+)_[0-9a-f]{4}(?=\.py)", r"\1_DIGEST"),
    (r"\b[\d,]+ lines per second", "N lines per second"),
    (r"(?m)^ +lines? [\d, -]+ of \S+ differs? from .*\n", ""),  # in the checkout of who changes this code
    (r"\n  note: speed: .*", ""),
    (r"\b(kvproof|z3|cvc5|torch) \d+\.\d+\.\d+[\w.+]*", r"\1 VERSION"),
)
Run = partial[Result]  # of a command of which some arguments are given


class Command:
    """Runs `kvproof` with these arguments, in this process, and keeps what it prints.

    test: its name, with its path below `tests/`. folder: of the test; its path differs from run to run.
    """

    def __init__(self, test: str, folder: Path, golden: Path = GOLDEN) -> None:
        self.test, self.folder, self.golden = test, folder, golden
        self.printed: defaultdict[str, str] = defaultdict(str)  # by command

    def __call__(self, *arguments: str | Path) -> Result:
        words = [str(one) for one in arguments]
        done = CliRunner().invoke(app, words, env=ENVIRONMENT)
        name = words[0] if words[0] in COMMANDS else "kvproof"
        self.printed[name] += settled(transcript(words, done), self.folder)
        return done

    def difference(self) -> str:
        """Where a section differs from what was printed in this test; empty if none does."""
        if not self.printed:
            return f"{self.test} takes the fixture `command` and ran none with it"
        for file in self._files():
            expected, printed = sections(file).get(self.test), self.printed.get(file.stem)
            if expected is None:
                return f"{file.name} has no section {self.test}; write it with `pytest --write-golden`"
            if printed is None:
                return f"{file.name} has a section {self.test}, and this test ran no such command"
            if expected != printed:
                lines = unified_diff(expected.splitlines(), printed.splitlines(), file.name, "printed", lineterm="")
                return "\n".join([f"{file.name} has other words in {self.test}:", *lines])
        return ""

    def write(self) -> None:
        """Let the sections of the test be what was printed."""
        for file in self._files():
            found = sections(file)
            found.pop(self.test, None)
            if file.stem in self.printed:
                found[self.test] = self.printed[file.stem]
            file.write_text("\n".join(f"{HEADING}{name}\n{found[name]}" for name in sorted(found)))

    def _files(self) -> list[Path]:
        """Those of the commands that the test ran, and those that have a section of it."""
        present = [file for file in self.golden.glob("*.txt") if self.test in sections(file)]
        return sorted({*present, *(self.golden / f"{name}.txt" for name in self.printed)})


def sections(file: Path) -> dict[str, str]:
    """The sections of a golden file, by the names of their tests; none if there is no such file."""
    if not file.is_file():
        return {}
    first, *texts = re.split(rf"^{HEADING}(.*)\n", file.read_text(), flags=re.MULTILINE)
    assert first == "", f"{file.name} does not begin with a heading"
    assert len({*texts[::2]}) == len(texts[::2]), f"{file.name} has two sections of one test"
    return {name: text.rstrip("\n") + "\n" for name, text in zip(texts[::2], texts[1::2], strict=True)}


def transcript(words: list[str], done: Result) -> str:
    """The command line, what went to both outputs, and the exit code."""
    output = "[a JSON document]" if done.stdout.startswith("{") else done.stdout.strip("\n")
    errors = done.stderr.strip("\n")
    parts = (f"$ kvproof {shlex.join(words)}", output, errors and f"[standard error]\n{errors}")
    return "\n".join([*filter(None, parts), f"[exit code {done.exit_code}]\n"])


def settled(text: str, folder: Path) -> str:
    """The text with names for what differs from run to run: seconds, versions, the paths of the test and of kvproof."""
    for path, name in ((str(folder), "FOLDER"), (sys.executable, "PYTHON"), (str(TESTS.parent), "REPOSITORY")):
        text = text.replace(path, name)
    for pattern, name in VOLATILE:
        text = re.sub(pattern, name, text)
    return text
