"""Results and traces as files: what was written is read back, and nothing else is taken for one."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from docs.generate.schemas import FILES, FOLDER, text

from kvproof.reports.document import DocumentError, decode, encode, read, write, write_atomically
from kvproof.reports.result import SCHEMA_VERSION, Check, Result, Run
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Verdict

TRACE = Trace("kvproof", "read-back", "x", {"window": None}, [["new", 0, [1, 2], None, ["a", True, 1.5]]])


def raw(result: Result) -> Any:
    return json.loads(encode(result))


def test_a_result_is_read_back_as_it_was_written(refuted: Result, tmp_path: Path) -> None:
    write(tmp_path / "result.json", refuted)
    assert read(tmp_path / "result.json", Result) == refuted


def test_a_trace_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path / "trace.json", TRACE)
    assert read(tmp_path / "trace.json", Trace) == TRACE


def test_equal_results_are_equal_bytes(refuted: Result) -> None:
    assert encode(refuted) == encode(decode(encode(refuted), Result, "it"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is not JSON"),
        (b'{"run": {', "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not a result of kvproof: it has no schema_version"),
        (b'{"a": 1}', "it is not a result of kvproof: it has no schema_version"),
        (b'{"schema_version": true}', "it is not a result of kvproof: it has no schema_version"),
        (b'{"schema_version": 1}', "it is not a result of kvproof: Object missing required field `run`"),
    ],
)
def test_a_broken_or_foreign_file_is_refused_with_one_message(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match="^" + message):
        decode(data, Result, "it")


def test_a_newer_schema_is_refused_before_anything_else_is_read(passed: Result) -> None:
    newer = raw(passed) | {"schema_version": SCHEMA_VERSION + 1, "run": "something new"}
    with pytest.raises(
        DocumentError, match=r"it has schema version 2, written by a newer kvproof; this one reads versions up to 1"
    ):
        decode(msgspec.json.encode(newer), Result, "it")


def test_a_field_that_we_do_not_know_is_refused_with_its_place(passed: Result) -> None:
    document = raw(passed)
    document["checks"][1]["colour"] = "red"
    with pytest.raises(DocumentError, match=r"the field `checks\[1\]\.colour` is unknown"):
        decode(msgspec.json.encode(document), Result, "it")


def test_a_verdict_that_does_not_exist_is_refused(passed: Result) -> None:
    document = raw(passed)
    document["checks"][0]["verdict"] = "passed"
    with pytest.raises(DocumentError, match=r"Invalid enum value 'passed' - at `\$\.checks\[0\]\.verdict`"):
        decode(msgspec.json.encode(document), Result, "it")


def test_a_trace_is_not_taken_for_a_result() -> None:
    with pytest.raises(DocumentError, match="is not a result of kvproof"):
        decode(encode(TRACE), Result, "it")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"cannot read .*none\.json: No such file"):
        read(tmp_path / "none.json", Result)


def test_half_a_character_in_a_message_does_not_stop_the_writing() -> None:
    result = Result(Run("0", "verify", "s", 1), [Check("a/b", "a", "b", Verdict.REFUTED, text="raised '\ud800'")])
    assert decode(encode(result), Result, "it").checks[0].text == "raised '\\ud800'"


def test_a_file_is_left_as_it_was_when_the_new_one_cannot_be_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "result.json"
    path.write_text("before")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        write(path, TRACE)
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {"result.json": "before"}


def test_a_link_is_followed_where_the_user_named_it_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to(tmp_path / "file.json")
    write_atomically(tmp_path / "link.json", encode(TRACE), follows_links=True)
    assert (tmp_path / "link.json").is_symlink()
    assert read(tmp_path / "file.json", Trace) == TRACE


def test_a_link_in_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / f".file.json.{os.getpid()}.tmp").symlink_to(tmp_path / "outside")
    write(tmp_path / "file.json", TRACE)
    assert sorted(os.listdir(tmp_path)) == ["file.json"]


def test_a_pipe_is_written_into_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, TRACE)
        assert decode(os.read(reader, 100_000), Trace, "it") == TRACE
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("name", FILES)
def test_the_published_schema_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == text(FILES[name]), "python -m docs.generate.schemas"


def published(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def test_results_and_traces_satisfy_the_published_schemas(refuted: Result, passed: Result) -> None:
    jsonschema.validate(raw(refuted), published("result.schema.json"))
    jsonschema.validate(raw(passed), published("result.schema.json"))
    jsonschema.validate(json.loads(encode(TRACE)), published("trace.schema.json"))


@pytest.mark.parametrize("change", [{"colour": "red"}, {"schema_version": 2}, {"checks": [{}]}, {"run": None}])
def test_what_reading_refuses_the_schema_refuses(passed: Result, change: dict[str, Any]) -> None:
    document = raw(passed) | change
    with pytest.raises(DocumentError):
        decode(msgspec.json.encode(document), Result, "it")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, published("result.schema.json"))
