"""The folder of a run: readable at any time, nothing of anyone else's replaced, one message when it cannot be used."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.runs.store import Store, StoreError
from kvproof.reports.document import read
from kvproof.reports.result import Check, Result, Run
from kvproof.spec.verdict import Exit, Verdict

FILES = ["index.html", "junit.xml", "report.txt", "result.json", "result.sarif", "summary.md"]


@pytest.fixture
def result() -> Result:
    return Result(
        Run("0.1.0", "verify", "kvproof", 7), [Check("walker/read-back", "walker", "read-back", Verdict.UNKNOWN)]
    )


def refusal(folder: Path, result: Result) -> tuple[str, Exit]:
    with pytest.raises(StoreError) as caught:
        Store(folder).open(result)
    return str(caught.value), caught.value.exit_code


def test_a_new_folder_holds_a_whole_unfinished_result_at_once(tmp_path: Path, result: Result) -> None:
    folder = tmp_path / "a" / "b"
    Store(folder).open(result)
    assert sorted(os.listdir(folder)) == [".lock", *FILES]
    stored = read(folder / "result.json", Result)
    assert (stored, stored.run.is_complete) == (result, False)


def test_a_later_run_replaces_the_result_and_keeps_the_counterexamples(tmp_path: Path, result: Result) -> None:
    Store(tmp_path).open(result)
    (tmp_path / "crashes").mkdir()
    (tmp_path / "crashes" / "old.json").write_text("kept")
    result.run.seed = 8
    Store(tmp_path).open(result)
    assert read(tmp_path / "result.json", Result).run.seed == 8
    assert (tmp_path / "crashes" / "old.json").read_text() == "kept"


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_someone_else_is_not_replaced(tmp_path: Path, result: Result, name: str) -> None:
    (tmp_path / name).write_text('{"name": "mine"}')
    assert refusal(tmp_path, result) == (
        f"{tmp_path / name} was not written by kvproof; name another folder with --out",
        Exit.USAGE,
    )
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: '{"name": "mine"}'}


def test_the_page_of_bytes_of_an_earlier_run_does_not_stay_beside_the_result_of_a_later_one(
    tmp_path: Path, result: Result
) -> None:
    Store(tmp_path).open(result)
    (tmp_path / "device.html").write_text("the bytes of another subject")
    Store(tmp_path).open(result)
    assert sorted(os.listdir(tmp_path)) == [".lock", *FILES]


def test_the_result_of_another_release_may_be_replaced(tmp_path: Path, result: Result) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"schema_version": 99, "run": {}, "checks": [], "new": 1}))
    Store(tmp_path).open(result)
    assert read(tmp_path / "result.json", Result) == result


def test_a_path_that_is_a_file_is_a_mistake_of_the_user(tmp_path: Path, result: Result) -> None:
    (tmp_path / "file").write_text("x")
    assert refusal(tmp_path / "file", result) == (f"{tmp_path}/file cannot be used: File exists", Exit.USAGE)
    under = tmp_path / "file" / "out"
    assert refusal(under, result) == (f"{under} cannot be used: Not a directory", Exit.USAGE)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_a_mistake_of_the_user(tmp_path: Path, result: Result, name: str) -> None:
    assert refusal(tmp_path / name, result)[1] is Exit.USAGE


def test_a_full_disk_is_an_error_and_leaves_the_old_file(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def full(draft: Path, target: Path) -> None:
        if target.name == "junit.xml":
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(draft, target)

    Store(tmp_path).open(result)
    monkeypatch.setattr(os, "replace", full)
    before = (tmp_path / "summary.md").read_bytes()
    result.run.subject = "another"
    message = (
        f"no space is left to write {tmp_path}/junit.xml; its previous content is kept. "
        "Free some space, or name another folder"
    )
    assert refusal(tmp_path, result) == (message, Exit.INTERNAL)
    assert (tmp_path / "summary.md").read_bytes() == before
    assert read(tmp_path / "result.json", Result).run.subject == "another"


def test_a_folder_without_write_permission_is_an_error(
    tmp_path: Path, result: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    message = f"{tmp_path}/result.json cannot be written (Permission denied); name another path"
    assert refusal(tmp_path, result) == (message, Exit.USAGE)


@pytest.mark.parametrize("there", ["mine.xml", "/dev/full"])
def test_a_link_in_the_folder_is_replaced_and_what_it_points_to_is_kept(
    tmp_path: Path, result: Result, there: str
) -> None:
    (tmp_path / "mine.xml").write_text("mine")
    store = Store(tmp_path / "run")
    store.open(result)
    (tmp_path / "run" / "junit.xml").unlink()
    (tmp_path / "run" / "junit.xml").symlink_to(tmp_path / there)
    store.write_all(result)
    assert (tmp_path / "mine.xml").read_text() == "mine"
    assert not (tmp_path / "run" / "junit.xml").is_symlink()


def test_a_second_run_is_refused_while_another_process_writes_to_the_folder(tmp_path: Path, result: Result) -> None:
    program = (
        "import sys; from pathlib import Path; from kvproof.check.runs.store import Store;"
        "from kvproof.reports.result import Result, Run;"
        "store = Store(Path(sys.argv[1])); store.open(Result(Run('0', 'hunt', 'kvproof', 1)));"
        "print('open', flush=True); sys.stdin.read()"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        before = (tmp_path / "result.json").read_bytes()
        message = (
            f"another run of kvproof (process {first.pid}) writes to {tmp_path}; wait until it has ended, or name "
            "another folder with --out"
        )
        assert refusal(tmp_path, result) == (message, Exit.USAGE)
        assert (tmp_path / "result.json").read_bytes() == before
        first.stdin.close()
    Store(tmp_path).open(result)
    assert read(tmp_path / "result.json", Result) == result
