"""What a subject prints appears on standard error, in printable form and up to a limit."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvproof.check.hosts.output import FIRST_BYTES, SubjectOutput, print_left_out
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.protocol.manager import Config

TALKS = """
import os, subprocess
from kvproof.check.subjects.builtin.manager import BuiltIn

class Talks(BuiltIn):
    def open(self, config):
        print("\\x1b]0;title\\x07::error::injected")
        os.write(2, b"##[error]x\\n")
        subprocess.run(["echo", "from a child"], check=True)
        print("no newline", end="", flush=True)
        super().open(config)
"""


def printed(parts: Iterator[bytes], capfd: pytest.CaptureFixture[str]) -> str:
    """What is printed of the output that consists of these parts."""
    output = SubjectOutput()
    writer = os.dup(output.descriptor)
    output.begin()
    for part in parts:
        while part:
            part = part[os.write(writer, part) :]
    os.close(writer)
    output.end()
    return capfd.readouterr().err


def test_output_is_printed_line_by_line_without_commands_for_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    factory = RemoteFactory(f"{tmp_path / 'talks.py'}:Talks")
    factory().open(Config(2, 4, 0))
    factory.close()
    lines = capfd.readouterr().err.splitlines()
    assert {r"\x1b]0;title\x07::error::injected", "# #[error]x", "from a child", "no newline"} == {*lines}


def test_a_command_that_is_written_in_two_parts_is_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert printed(iter([b":", b":error::x\n"]), capfd) == ": :error::x\n"


def test_of_much_output_the_beginning_and_the_end_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    text = printed((b"%08d\n" % number for number in range(100_000)), capfd)
    assert text.startswith("00000000\n00000001\n")
    assert f"the subject wrote 900,000 bytes; {900_000 - FIRST_BYTES:,} of them are left out" in text
    assert text.endswith("before the last 1,024:\n" + text[-1025:])
    assert text[-1025:].endswith("00099998\n00099999\n\n")
    assert len(text) < FIRST_BYTES + 1200


def test_what_is_left_out_is_reported_before_the_verdict_and_once(capfd: pytest.CaptureFixture[str]) -> None:
    output = SubjectOutput()
    writer = os.dup(output.descriptor)
    output.begin()
    os.write(writer, b"x" * FIRST_BYTES + b"\nabc")
    print_left_out()
    assert capfd.readouterr().err.endswith("; 4 of them are left out before the last 4:\n\nabc\n")
    os.close(writer)
    output.end()
    assert capfd.readouterr().err == ""
