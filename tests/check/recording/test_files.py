"""Files that are broken, foreign or incomplete: each gives one clear message with the place of the error."""

import gzip
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvproof.check.recording.reader import RecordingError
from kvproof.check.recording.validate import validate

Serve = Callable[..., Path]


@pytest.fixture
def lines(serve: Serve) -> list[str]:
    return serve(1, 30).read_text().splitlines()


def written(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "edited.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def refused(path: Path) -> str:
    with pytest.raises(RecordingError) as caught:
        validate(path)
    return str(caught.value).replace(str(path), "FILE")


def test_a_field_of_a_wrong_type_is_named_with_its_column(lines: list[str], tmp_path: Path) -> None:
    lines[4] = re.sub(r'"free":\[\d+,', '"free":["many",', lines[4])
    column = lines[4].index('"free"') + 1
    assert refused(written(tmp_path, lines)) == (
        f"FILE, line 5, column {column}: Expected `int`, got `str` - at `$.free[0]`; use the file as it was recorded"
    )


def test_an_answer_of_a_kind_that_the_call_does_not_have_is_reported(lines: list[str], tmp_path: Path) -> None:
    place = next(i for i, line in enumerate(lines) if '"call":"can_append_slots"' in line)
    lines[place] = lines[place].replace('"answer":true', '"answer":7')
    message = f"FILE, line {place + 1}, column 1: can_append must return bool or Admission; it returned 7; "
    assert refused(written(tmp_path, lines)).startswith(message)


def test_a_field_that_is_missing_or_foreign_is_named(lines: list[str], tmp_path: Path) -> None:
    whole = lines[4]
    lines[4] = re.sub(r'"call":"\w+",', "", whole)
    assert "FILE, line 5, column 1: Object missing required field `call`" in refused(written(tmp_path, lines))
    lines[4] = whole.replace('"call"', '"extra":1,"call"', 1)
    assert f"line 5, column {lines[4].index('extra')}: Object contains unknown field" in refused(
        written(tmp_path, lines)
    )


def test_lines_that_were_swapped_lost_or_repeated_are_reported_by_their_number(
    lines: list[str], tmp_path: Path
) -> None:
    swapped = [*lines[:5], lines[6], lines[5], *lines[7:]]
    assert "FILE, line 6, column 1: found call 6, expected call 5" in refused(written(tmp_path, swapped))
    assert "found call 4, expected call 3" in refused(written(tmp_path, [*lines[:3], *lines[4:]]))
    assert "found call 2, expected call 3" in refused(written(tmp_path, [*lines[:3], *lines[2:]]))


def test_a_line_that_was_cut_within_the_file_is_reported_with_its_column(lines: list[str], tmp_path: Path) -> None:
    lines[5] = lines[5][:20]
    assert "FILE, line 6, column 21: JSON is malformed: invalid character (byte 20)" in refused(
        written(tmp_path, lines)
    )


def test_a_recording_with_a_torn_last_line_is_not_judged_to_its_end(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_text("\n".join([*lines[:20], lines[20][:15]]))
    done = validate(path)
    assert (done.finding, done.line, done.num_calls) == (None, 21, 19)
    assert done.reason.startswith("its last line is incomplete, and it has no end line: ")


@pytest.mark.parametrize("num_lines", [1, 2, 20, -1])
def test_a_recording_without_an_end_is_not_judged_to_its_end(num_lines: int, lines: list[str], tmp_path: Path) -> None:
    done = validate(written(tmp_path, lines[:num_lines]))
    assert (done.finding, done.line) == (None, num_lines % len(lines))
    assert done.reason.startswith("it has no end line: ")


@pytest.mark.parametrize("data", [b"\x00\xff\xfe\x80" * 50, b'{"subject": "x"}\n', b"[]\n", b"hello\n"])
def test_a_file_that_is_no_recording_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    assert refused(path).startswith(
        "FILE, line 1, column 1: this is not the header of a recording of kvproof; make one with"
    )


def test_an_empty_file_a_folder_and_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert refused(path).startswith("FILE is empty, but a recording begins with a header")
    assert refused(tmp_path) == "FILE cannot be read: Is a directory"
    assert refused(tmp_path / "none").endswith("cannot be read: No such file or directory")


def test_a_newer_format_and_impossible_sizes_are_refused(lines: list[str], tmp_path: Path) -> None:
    newer = lines[0].replace('"kvproof_recording":1', '"kvproof_recording":2')
    assert "the recording has format version 2" in refused(written(tmp_path, [newer, *lines[1:]]))
    header, *calls = lines
    for change in ('"num_gpu_blocks":-16', '"num_gpu_blocks":16,"window":-1', '"num_gpu_blocks":16,"local_chunk":-4'):
        impossible = header.replace('"num_gpu_blocks":16', change)
        assert "the sizes in the header are impossible" in refused(written(tmp_path, [impossible, *calls]))


def test_sizes_that_would_take_gigabytes_are_refused(lines: list[str], tmp_path: Path) -> None:
    whole = lines[0]
    lines[0] = whole.replace('"num_gpu_blocks":16', '"num_gpu_blocks":10000000')
    assert "at most 1,000,000 blocks of at most 65,536 slots can be judged" in refused(written(tmp_path, lines))
    lines[0] = re.sub(r'"block_size":\d+', '"block_size":5000000', whole)
    assert "at most 1,000,000 blocks" in refused(written(tmp_path, lines))
    lines[0], call = whole, '{"n":1,"call":"can_allocate","free":[16,0],"group":"a","answer":"OK",'
    for field, number in (("num_tokens", 1 << 31), ("num_seqs", 1 << 31), ("lookahead", 1 << 40), ("num_tokens", -1)):
        message = refused(written(tmp_path, [whole, f'{call}"{field}":{number}}}']))
        assert re.match(rf"FILE, line 2, column \d+: Expected `int` [<>]= \d+ - at `\$.{field}`", message)


@pytest.mark.parametrize("name", ["get_num_cached_tokens", "append_slots", "free"])
def test_a_line_without_the_sequence_of_its_call_is_not_judged(name: str, lines: list[str], tmp_path: Path) -> None:
    call = f'{{"n":1,"call":"{name}","free":[16,12],"group":"a","answer":0}}'
    done = validate(written(tmp_path, [lines[0], call]))
    assert (done.finding, done.reason) == (None, f"the line of {name} has no sequence")


def test_a_file_without_end_is_refused_at_its_first_line() -> None:
    message = refused(Path("/dev/zero")).replace("/dev/zero", "FILE")
    assert message.startswith("FILE, line 1, column 33554432: the line is longer than 33,554,432 bytes")


def test_gzip_is_read_and_broken_gzip_is_reported(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "recording.gz"
    data = gzip.compress(written(tmp_path, lines).read_bytes())
    path.write_bytes(data)
    assert validate(path).num_calls == len(lines) - 2
    path.write_bytes(data[:-200])
    assert re.fullmatch(r"FILE, line \d+, column 1: the gzip data is broken \(.*\); copy the file again", refused(path))
    path.write_bytes(data[:300] + bytes([data[300] ^ 0x55]) + data[301:])
    assert "line" in refused(path)


def test_a_pipe_is_read_as_it_comes(lines: list[str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("".join(f"{line}\n" for line in lines),))
    writer.start()
    assert validate(pipe).num_calls == len(lines) - 2
    writer.join()


@pytest.mark.parametrize("place", range(2, 40, 3))
def test_a_file_that_was_tampered_with_is_never_a_fault_of_kvproof(
    place: int, lines: list[str], tmp_path: Path
) -> None:
    number, rest = re.fullmatch(r'({"n":\d+)(.*)', lines[place]).groups()  # type: ignore[union-attr]
    for pattern, other in ((r"\d+", "77"), (r"\d+", "-5"), (r'"\w+"', '"x"'), (r"\[[^][]*\]", "[]")):
        line = number + re.sub(pattern, other, rest)
        try:
            done = validate(written(tmp_path, [*lines[:place], line, *lines[place + 1 :]]))
        except RecordingError:
            continue
        assert done.finding or done.reason or done.num_calls == len(lines) - 2
