"""The configuration of a repository: where it is found, what is refused, and that the command line wins over it."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from tests.golden_files import Command
from typer.main import get_command
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.cli.config import CONFIGURED, OTHERS
from kvproof.check.runs.configuration import (
    KEYS,
    SCHEMA_FILE,
    ConfigurationError,
    find_configuration,
    read_configuration,
    schema,
    schema_text,
)
from kvproof.check.runs.run import version

WHOLE = """
subject = "adapter.py:Adapter"
effort = 20_000
budget = 3.5
seed = 7
judges = ["explorer", "walker"]
baseline = "accepted.json"
out = "build/kvproof"
trusted_subjects = ["tests/*.py:*"]

[fix]
caching = false
kv_groups = ["full", "window"]

[[known]]
property = "refcount-exact"
reason = "it is being fixed"
expires = 2027-01-31
"""


def kvproof(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def rows(done: Result) -> dict[str, list[str]]:
    assert done.exit_code == 0, done.output
    return {name: rest for name, *rest in (re.split(r"\s{2,}", line.strip()) for line in done.output.splitlines()[1:])}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with an adapter and a configuration; the working folder is below its root."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "tests").mkdir()
    (tmp_path / "repository" / "adapter.py").write_text("")
    (tmp_path / "repository" / "kvproof.toml").write_text(WHOLE)
    monkeypatch.chdir(tmp_path / "repository" / "tests")
    return tmp_path / "repository"


def test_each_value_is_printed_with_the_place_that_it_comes_from(repository: Path) -> None:
    found = rows(kvproof("config", "hunt", "--seed", "9"))
    assert found["--seed"] == ["9", "command line"]
    assert found["--budget"] == ["3.5", "../kvproof.toml:4"]
    assert found["--contract-fails"] == ["false", "default"]
    assert found["--effort"] == ["20000", "../kvproof.toml:3"]
    assert found["--subject"] == ["../adapter.py:Adapter", "../kvproof.toml:2"]
    assert found["--out"] == ["../build/kvproof", "../kvproof.toml:8"]
    assert found["--fix"] == ["caching=false, kv_groups=full,window", "../kvproof.toml:11"]
    assert found["--json"] == ["–", "default"]
    assert found["trusted_subjects"] == ["tests/*.py:*", "../kvproof.toml:9"]
    assert found["known"] == ["1", "../kvproof.toml:15"]
    found = rows(kvproof("config"))
    assert found["--seed"] == ["7", "../kvproof.toml:5"]
    assert found["--judges"] == ["explorer, walker", "../kvproof.toml:6"]
    assert found["--baseline"] == ["../accepted.json", "../kvproof.toml:7"]


def test_every_key_is_an_option_of_a_command_or_a_list(repository: Path) -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    options = {parameter.name for name in CONFIGURED for parameter in commands[name].params}
    assert set(KEYS) - options <= set(OTHERS)


def test_a_run_takes_its_options_from_the_file_and_the_command_line_wins(repository: Path) -> None:
    (repository / "kvproof.toml").write_text('subject = "nowhere.py:Adapter"\nout = "of-the-file"\nseed = 3\n')
    missing = kvproof("hunt")
    assert (missing.exit_code, "there is no file nowhere.py" in missing.stderr) == (2, True)
    done = kvproof("hunt", "--subject", "kvproof-pool", "--budget", "0.1")
    assert done.output.startswith(f"kvproof {version()} hunt, subject kvproof-pool, seed 3, ")
    assert json.loads((repository / "of-the-file" / "result.json").read_text())["run"]["seed"] == 3


def test_a_hunt_is_continued_with_its_own_options(repository: Path, command: Command) -> None:
    (repository / "kvproof.toml").write_text('subject = "kvproof"\n[fix]\ncaching = false\n')
    assert command("hunt", "--resume", "nowhere").exit_code == 2


def test_the_nearest_file_counts_and_no_folder_above_the_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository.parent / "kvproof.toml").write_text('subject = "pipe:touch ran"\n')
    project = repository / "tests" / "pyproject.toml"
    project.write_text("[tool.other]\nx = 1\n[tool.kvproof]\nseed = 5\n")
    found = find_configuration()
    assert found is not None
    assert (found.path, found.options, found.place("seed")) == (Path("pyproject.toml"), {"seed": 5}, "pyproject.toml:4")
    project.write_text("[tool.other]\nx = 1  # nothing of kvproof\n")
    (repository / "kvproof.toml").unlink()
    assert find_configuration() is None
    (repository / ".git").rmdir()
    monkeypatch.chdir(repository)
    assert find_configuration() is None


@pytest.mark.parametrize(
    "text",
    [
        "\nsede = 3",
        'seed = "x"',
        "# one\nseed = -1",
        "budget = 0",
        "seed = 9223372036854775808",
        'effort = "fast"',
        'subject = "nowhere.py:Adapter"',
        'seed = 1\njudges = ["walkr"]',
        "trusted_subjects = 3",
        "known = 3",
        '[[known]]\nproperty = "x"\n[[known]]  # two\nreasn = 1',
        'subject = " "',
        "[fix]\ncaching = {}",
        'effort = 1\nbaseline = "kvproof.toml"',
        'baseline = "nowhere.json"',
        'effort = 1\njudges = ["explorer"]\nout = "kvproof.toml"',
    ],
)
def test_a_key_that_cannot_be_meant_is_a_usage_error_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kvproof.toml").write_text(text)
    assert command("verify").exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "[fix]\ncaching = true\nblock_size = 0",
        '[fix]\ncaching = "x"',
        '[fix]\nwindow = "x"',
        'fix.watermark = "x"',
        "[fix]\ncachin = true",
    ],
)
def test_a_fixed_field_that_cannot_be_meant_is_a_usage_error_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kvproof.toml").write_text(text)
    assert command("hunt", "--subject", "kvproof").exit_code == 2
    assert command("hunt", "--subject", "kvproof", "--fix", "block_size=0").exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        'subject = "kvproof"\neffort = "fast"',
        'judges = ["explore"]',
        "[fix]\nblock_size = 0",
        "known = 3",
        "trusted_subjects = 3",
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_where_the_options_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kvproof.toml").write_text(text)
    done = command("config", "hunt")
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("name", ["hunt", "history"])
def test_a_judge_that_does_not_exist_is_refused_by_commands_that_take_no_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kvproof.toml").write_text('subject = "kvproof-pool"\njudges = ["loop, pol"]')
    assert command(name).exit_code == 2


def test_the_schema_in_the_package_is_that_of_the_keys_and_accepts_them(repository: Path) -> None:
    assert SCHEMA_FILE.read_text() == schema_text() == kvproof("config", "--schema").output
    values = read_configuration(repository / "kvproof.toml").values
    values["known"][0]["expires"] = str(values["known"][0]["expires"])
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(values)
    assert not validator.is_valid({"sede": 3})


def test_a_table_of_a_project_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\nkvproof = 3\n")
    with pytest.raises(ConfigurationError, match="must be a table"):
        find_configuration(tmp_path)


def test_a_file_of_another_user_above_the_working_folder_is_an_error(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = (repository / "kvproof.toml").stat().st_uid
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    monkeypatch.setattr("kvproof.check.runs.configuration.ROOT", owner + 2)
    with pytest.raises(ConfigurationError, match=r"kvproof\.toml belongs to another user"):
        find_configuration()
    monkeypatch.chdir(repository)
    assert find_configuration() is not None
