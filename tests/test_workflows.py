"""The action and the workflows: valid, pinned by commit, and safe against what an input holds."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

TREE = Path(__file__).parents[1]
ACTION, WORKFLOWS = TREE / "action.yml", sorted((TREE / ".github" / "workflows").glob("*.yml"))
TEMPLATE = TREE / "check" / "kvproof" / "check" / "cli" / "templates" / "workflow.j2"
GUIDE = TREE / "docs" / "ci.md"
PINNED = re.compile(r"[\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
FAKE = """#!/usr/bin/env bash
printf "%s\\n" "$@" >arguments
echo "the summary" >"$OUT/summary.md"
echo "$KVPROOF_URL" >address
exit 4
"""


def test_every_action_of_others_is_pinned_by_its_commit() -> None:
    used = [
        line for file in (ACTION, TEMPLATE, GUIDE, *WORKFLOWS) for line in re.findall(r"uses: (.*)", file.read_text())
    ]
    assert len(used) > 8
    assert [line for line in used if not line.startswith(("./", "OWNER/")) and not PINNED.fullmatch(line)] == []


def test_every_file_of_the_development_install_but_torch_has_a_hash() -> None:
    requirements = re.split(r"\n(?=\S)", (TREE / "requirements-dev.txt").read_text().strip())
    pinned = [one for one in requirements if not one.startswith("#")]
    assert len(pinned) > 30
    assert [one for one in pinned if not re.match(r"[\w.\[\]-]+==\S+.*\\\n +--hash=sha256:[0-9a-f]{64}", one)] == []
    recipe = (TREE / "Makefile").read_text().partition("$(READY): pyproject.toml")[2]
    install = re.findall(r"\$\(PIP\) install .*", recipe)
    assert [("--require-hashes" in one, "$(TORCH)" in one, "--no-deps" in one) for one in install] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_no_input_is_part_of_a_script() -> None:
    for file in (ACTION, *WORKFLOWS):
        assert re.findall(r"run: .*\$\{\{ inputs|^ +[^:\n]*\$\{\{ inputs", file.read_text(), re.M) == [], file


def loaded(file: Path) -> Any:
    """The content of a YAML file."""
    yaml: Any = pytest.importorskip("ruamel.yaml", reason="it is in the extra `test`")
    return yaml.YAML(typ="safe").load(file)


@pytest.mark.parametrize("file", [ACTION, *WORKFLOWS], ids=lambda file: file.name)
def test_the_file_has_the_schema_of_github(file: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="it is in the extra `test`")
    name = "github-actions.json" if file == ACTION else "github-workflows.json"
    schema = json.loads(files("check_jsonschema").joinpath("builtin_schemas", "vendor", name).read_text())
    jsonschema.validators.validator_for(schema)(schema).validate(loaded(file))


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_has_nothing_to_say() -> None:
    done = subprocess.run(["actionlint", *map(str, WORKFLOWS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_script_of_the_action_passes_its_inputs_as_they_are_and_keeps_the_exit_code(tmp_path: Path) -> None:
    (step,) = [step for step in loaded(ACTION)["runs"]["steps"] if step.get("id") == "run"]
    (tmp_path / "out").mkdir()
    (tmp_path / "kvproof").write_text(FAKE)
    (tmp_path / "kvproof").chmod(0o755)
    inputs = {"COMMAND": "verify", "SUBJECT": "a.py:A; touch $(ran)", "EFFORT": "", "SEED": "7", "BASELINE": ""}
    written = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "ARGS": "--known k.toml",
        "OUT": "out",
        "GITHUB_SERVER_URL": "https://code.example",
        "GITHUB_ACTION_REPOSITORY": "maintainers/kvproof",
        **inputs,
        **written,
    }

    done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], cwd=tmp_path, env=environment)

    assert done.returncode == 4
    expected = ["verify", "--out", "out", "--subject", "a.py:A; touch $(ran)", "--seed", "7", "--known", "k.toml"]
    assert (tmp_path / "arguments").read_text().splitlines() == expected
    assert (tmp_path / "address").read_text() == "https://code.example/maintainers/kvproof\n"
    assert Path(written["GITHUB_OUTPUT"]).read_text() == "exit-code=4\n"
    assert Path(written["GITHUB_STEP_SUMMARY"]).read_text() == "the summary\n"


SUPPORTED = re.findall(
    r"Python :: (3\.\d+)", " ".join(tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["classifiers"])
)


def test_every_file_that_names_the_supported_versions_of_python_names_the_same() -> None:
    oldest, newest = SUPPORTED[0], SUPPORTED[-1]
    project = tomllib.loads((TREE / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == f">={oldest}"
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    in_ci = loaded(TREE / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert in_ci[: len(SUPPORTED)] == SUPPORTED
    assert [line for line in (TREE / "requirements-dev.txt").read_text().splitlines() if f"< '{oldest}'" in line] == []
    for file, sentence in {
        "README.md": f"Both need python3 ≥ {oldest},",
        "CONTRIBUTING.md": f"Python {oldest} or newer",
        "docs/tutorial.md": f"Python {oldest} or newer",
        "docs/install.md": f"Python {', '.join(SUPPORTED[:-1])} and {newest} are supported; CI runs",
    }.items():
        assert sentence in (TREE / file).read_text(), file


def run_ci(folder: Path, present: list[str], fails: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of `.ci/run` in a folder, with these Pythons and a `make` that makes environments and nothing else."""
    (folder / ".ci").mkdir()
    for name in (".ci/run", "pyproject.toml"):
        shutil.copy(TREE / name, folder / name)
    commands = folder / "commands"
    commands.mkdir()
    for tool in ("bash", "dirname", "sed", "grep", "sort", "tail", "uniq", "rm", "mkdir"):
        (commands / tool).symlink_to(str(shutil.which(tool)))
    scripts = {f"python{version}": f"echo {version}" for version in present} | {"python3": f"echo {SUPPORTED[0]}"}
    environment = 'case "$1" in VENV=*) mkdir -p "${1#VENV=}";; *) mkdir -p .venv;; esac'
    scripts["make"] = f'{environment}; echo "$@" >>{folder}/made; case "$*" in *{fails}*) exit 2;; esac'
    for name, script in scripts.items():
        (commands / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (commands / name).chmod(0o755)
    return subprocess.run([folder / ".ci" / "run"], env={"PATH": str(commands)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("present", "fails", "also_ran", "code"),
    [
        (SUPPORTED, "nothing", [SUPPORTED[-1]], 0),
        (SUPPORTED[:2], "nothing", [SUPPORTED[1]], 0),
        (SUPPORTED, f"VENV=.venv-{SUPPORTED[-1]}", [SUPPORTED[-1]], 1),
        (["3.9"], "nothing", [], 0),
    ],
)
def test_ci_runs_under_the_default_python_and_the_oldest_and_newest_that_are_there(
    present: list[str], fails: str, also_ran: list[str], code: int, tmp_path: Path
) -> None:
    done = run_ci(tmp_path, present, fails)

    assert (done.returncode, done.stderr) == (code, "")
    made = [f"VENV=.venv-{version} PYTHON=python{version} test" for version in also_ran]
    assert (tmp_path / "made").read_text().splitlines() == ["test", *made]
    assert f"Ran under Python {' '.join([SUPPORTED[0], *also_ran])}. Supported are" in done.stdout


def test_ci_removes_the_environments_that_it_made_and_no_other(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()

    run_ci(tmp_path, SUPPORTED, fails="nothing")

    assert [path.name for path in tmp_path.glob(".venv*")] == [".venv"]
    assert len((tmp_path / "made").read_text().splitlines()) == 2
