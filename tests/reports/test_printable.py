"""Whatever a subject says is shown and does nothing: no control sequence, no command of a runner, no endless line."""

import io
import sys
from dataclasses import replace
from pathlib import Path
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from kvproof.check.runs.errors import fail
from kvproof.reports.document import read, write
from kvproof.reports.junit import junit
from kvproof.reports.markdown import markdown
from kvproof.reports.printable import TEXT_MAX, cut, printable
from kvproof.reports.result import Result
from kvproof.reports.sarif import sarif
from kvproof.reports.terminal import plain_text, print_report, wrapped
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Exit

ACTS = "\x1b]0;title\x07\x1b[2J\r\x00\x9b31m\u202eabc\ud800\u2028"
COMMANDS = "::error::one\n   ::add-mask::two\n\t::stop-commands::three\nfour ##[error] five"
ESCAPED = r"\x1b]0;title\x07\x1b[2J\r\x00\x9b31m\u202eabc\ud800\u2028"


def test_characters_that_act_are_shown_as_escapes() -> None:
    assert printable(ACTS) == ESCAPED
    assert printable("a table\tof\nlines, ü, 漢, 🙂") == "a table\tof\nlines, ü, 漢, 🙂"


def test_no_line_is_a_command_of_a_runner() -> None:
    assert printable(COMMANDS).splitlines() == [
        ": :error::one",
        "   : :add-mask::two",
        "\t: :stop-commands::three",
        "four # #[error] five",
    ]
    assert printable("tests/test_one.py::test_two: a::b") == "tests/test_one.py::test_two: a::b"


@given(st.text())
def test_what_is_printable_stays_as_it_is_and_never_acts(text: str) -> None:
    once = printable(text)
    assert printable(once) == once
    assert "\x1b" not in once
    assert "##[" not in once
    assert not any(line.strip().startswith("::") for line in once.split("\n"))


def test_of_a_long_list_of_numbers_the_first_ones_are_shown() -> None:
    tokens, table = " ".join(map(str, range(2000))), ", ".join(map(str, range(30)))
    assert cut(f"new(group 1, 2000 tokens: {tokens})") == "new(group 1, 2000 tokens: 0 1 2 3 4 5 6 7 … (1,992 more))"
    assert cut(f"refs went None -> [{table}]; x 7") == "refs went None -> [0, 1, 2, 3, 4, 5, 6, 7, … (22 more)]; x 7"
    short = ", ".join(map(str, range(23)))
    assert cut(short) == short


def test_a_very_long_text_is_cut_and_says_so() -> None:
    assert cut("x" * TEXT_MAX) == "x" * TEXT_MAX
    assert cut("x" * 3_000_000) == f"{'x' * TEXT_MAX}… (cut here; it has 3,000,000 characters)"


@pytest.fixture
def hostile(refuted: Result, tmp_path: Path) -> Result:
    """A result of which every text of the subject acts."""
    text = f"{ACTS}\n{COMMANDS}\n{'x' * 1_000_000}"
    path = tmp_path / "crashes" / "one.json"
    write(path, replace(read(path, Trace), text=text, steps=[text, text]))
    run = replace(refuted.run, subject=f"mine {ACTS}", host={**refuted.run.host, ACTS: ACTS})
    checks = [replace(check, text=text, signature=text) for check in refuted.checks]
    return replace(refuted, run=run, checks=checks, messages=[text])


def test_no_report_acts_or_grows_with_the_text(hostile: Result, tmp_path: Path) -> None:
    file = io.StringIO()
    print_report(hostile, tmp_path, Console(file=file, force_terminal=False, width=200))
    reports = {
        "terminal": file.getvalue(),
        "text": plain_text(hostile, tmp_path),
        "markdown": markdown(hostile, tmp_path),
        "junit": junit(hostile, tmp_path).decode(),
        "sarif": sarif(hostile, tmp_path).decode(),
    }
    assert minidom.parseString(reports["junit"])
    for name, report in reports.items():
        assert "\x1b" not in report, name
        assert len(report) < 300_000, name
    for name in ("terminal", "text", "markdown"):
        assert not any(line.strip().startswith("::") for line in reports[name].split("\n")), name


def test_a_message_on_standard_error_acts_no_more_than_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    fail(f"{ACTS}\n{COMMANDS}", Exit.USAGE)
    assert capsys.readouterr().err.startswith(f"kvproof: {ESCAPED}\n: :error::one\n")


def test_a_long_line_is_wrapped_between_words_and_a_command_stays_whole() -> None:
    line = "  the prover needs z3, which is not installed: pip install 'kvproof[prove]', or see `kvproof verify --help`"
    lines = wrapped(line, 50)
    assert lines == [
        "  the prover needs z3, which is not installed:",
        "    pip install 'kvproof[prove]', or see",
        "    `kvproof verify --help`",
    ]


def test_a_message_fits_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    fail("the adapter breaks the protocol " * 3 + "\nlast", Exit.USAGE)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 40
    assert (lines[0][:9], lines[1][:2], lines[-1]) == ("kvproof: ", "  ", "last")
