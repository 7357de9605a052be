"""A file never chooses code: whatever subject a trace or a hunt's folder names, none of its code runs unasked."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting.resume import HuntPlan, begun
from kvproof.check.runs.configuration import read_configuration
from kvproof.check.runs.replay import Trust, UntrustedSubject, trust
from kvproof.reports.document import DocumentError
from kvproof.reports.printable import printable

EVIL = """
from pathlib import Path
Path(__file__).with_name("ran").touch()
from kvproof.check.subjects.builtin.manager import BuiltIn as factory
"""
CODE = [
    "pipe:touch ran",
    "pipe: sh -c 'touch ran'",
    "evil:factory",
    "evil.py:factory",
    "./evil.py:factory",
    "{folder}/evil.py:factory",
    "{folder}/crashes/../evil.py:factory",
    "sub/evil.py:factory",
    "kvproof.check.subjects.registry:find",
    "nano-vllm==evil",
    "nano-vllm=={folder}",
    "mini-sglang==.",
    "nano-vllm-scheduler==../evil",
    "vllm-v1==./evil",
    "vllm-v1=={folder}",
    "vllm-v0==~/evil",
    "sglang==..",
    "kvproof ;touch ran",
    "kvproof\npipe:touch ran",
    "\u202epipe:touch ran",
    "",
    "==",
]
TRACE: dict[str, Any] = {
    "property": "refcount-exact",
    "text": "",
    "config": {"block_size": 1, "num_gpu_blocks": 2},
    "operations": [["new", 1, [1], [0]], ["admit", 1, 1]],
    "schema_version": 1,
}


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with code of somebody else in it, and in the folder of traces."""
    for place in (tmp_path, tmp_path / "sub", tmp_path / "crashes", tmp_path / "evil"):
        place.mkdir(exist_ok=True)
        (place / "evil.py").write_text(EVIL)
        (place / "nanovllm.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(folder: Path) -> bool:
    return any(folder.rglob("ran"))


def saved(folder: Path, subject: str) -> Path:
    path = folder / "crashes" / "one.json"
    path.write_text(json.dumps(TRACE | {"subject": subject}))
    return path


@pytest.mark.parametrize("name", CODE)
def test_a_trace_that_names_code_is_refused_with_the_command_to_type(folder: Path, name: str) -> None:
    subject = name.format(folder=folder)
    done = kvproof("replay", str(saved(folder, subject)), "--page")
    assert done.exit_code == 2, done.output
    command = f"kvproof replay {folder}/crashes/one.json --subject {shlex.quote(subject)}"
    assert printable(command.splitlines()[0]) in done.output
    assert not ran(folder)


@pytest.mark.parametrize("name", CODE)
def test_a_hunt_is_not_resumed_with_code_that_its_folder_names(folder: Path, name: str) -> None:
    begun(folder, HuntPlan(name.format(folder=folder), 3)).close()
    run = {"version": "0", "command": "hunt", "subject": "kvproof", "seed": 3}
    (folder / "result.json").write_text(json.dumps({"run": run, "schema_version": 1, "checks": []}))
    done = kvproof("hunt", "--resume", ".", "--budget", "1")
    assert done.exit_code == 2, done.output
    assert "type: kvproof hunt --resume . --subject " in done.stderr
    assert not ran(folder)


def test_a_report_runs_nothing_of_the_subject_that_it_is_about(folder: Path) -> None:
    saved(folder, "evil.py:factory")
    run = {"version": "0", "command": "hunt", "subject": "evil.py:factory", "seed": 3}
    check = {
        "id": "w/refcount-exact",
        "judge": "walker",
        "property": "refcount-exact",
        "verdict": "refuted",
        "trace": "crashes/one.json",
    }
    (folder / "result.json").write_text(json.dumps({"run": run, "checks": [check], "schema_version": 1}))
    assert kvproof("report", ".").exit_code == 1
    assert not ran(folder)


def test_code_that_the_user_names_runs(folder: Path) -> None:
    path = str(saved(folder, "evil.py:factory"))
    assert kvproof("replay", path, "--subject", "evil.py:factory", "--no-isolation").exit_code == 0
    assert (folder / "ran").exists()


def test_trust_runs_what_the_file_names_also_from_a_folder_above_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(saved(folder, "sub/evil.py:factory"))
    monkeypatch.chdir(folder / "evil")
    assert kvproof("replay", path, "--trust", "--no-isolation").exit_code == 0
    assert (folder / "sub" / "ran").exists()


def test_a_name_of_the_table_may_come_from_a_file(folder: Path) -> None:
    assert kvproof("replay", str(saved(folder, "kvproof"))).exit_code == 0
    assert Trust().subject_of(Path("one.json"), "vllm-v0==0.6.4.post1") == "vllm-v0==0.6.4.post1"


def test_the_configuration_of_the_working_folder_trusts_by_pattern(folder: Path) -> None:
    (folder / "kvproof.toml").write_text('trusted_subjects = ["sub/*:factory"]\n')
    assert kvproof("replay", str(saved(folder, "sub/evil.py:factory")), "--no-isolation").exit_code == 0
    assert (folder / "sub" / "ran").exists()
    for other in ("evil.py:factory", "sub/../evil.py:factory", "sub/evil.py:other"):
        with pytest.raises(UntrustedSubject):
            trust().subject_of(Path("one.json"), other)


def test_the_configuration_beside_the_trace_trusts_nothing(folder: Path) -> None:
    (folder / "crashes" / "kvproof.toml").write_text('trusted_subjects = ["*"]\n')
    assert kvproof("replay", str(saved(folder, "evil.py:factory"))).exit_code == 2
    assert not ran(folder)


def test_a_trusted_file_is_that_of_the_configuration_and_not_one_beside_the_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kvproof.toml").write_text('trusted_subjects = ["adapter.py:*"]\n')
    (folder / "crashes" / "adapter.py").write_text(EVIL)
    done = kvproof("replay", str(saved(folder, "adapter.py:factory")))
    assert (done.exit_code, ran(folder)) == (2, False)
    assert "there is no file adapter.py" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trusted_subjects = 3", "trusted_subjects must be a list of texts"),
        ("trusted_subjects = [3]", "trusted_subjects must be a list of texts"),
        ("trusted_subject = []", "there is no key 'trusted_subject' (did you mean trusted_subjects?); the keys are "),
        ("known = " + "1" * 5_000, "is not TOML"),
        ("known = " + "[" * 100_000, "is not TOML"),
        (".".join("a" * 2_000) + " = 1", "kvproof.toml:1: there are too many dots for the keys of TOML"),
        ("# " + "x" * (1 << 20), "it has more than 1,048,576 bytes"),
    ],
    ids=("number", "numbers", "key", "digits", "depth", "dots", "length"),
)
def test_a_configuration_that_cannot_be_used_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "kvproof.toml").write_text(text)
    with pytest.raises(DocumentError) as refused:
        trust(folder)
    assert message in str(refused.value)


def test_a_configuration_that_is_no_regular_file_is_refused() -> None:
    with pytest.raises(DocumentError, match="it is not a regular file"):
        read_configuration(Path("/dev/zero"))
