"""A hunt goes on where it ended: the next run of its seed, and nothing is searched or forgotten twice."""

import json
from pathlib import Path

import pytest
from tests.check.forgetful import FORGETFUL
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting.findings import Saving
from kvproof.check.hunting.resume import Bookmark, HuntProgress, resumed
from kvproof.check.hunting.walk_stage import walker_stage
from kvproof.check.oracle.level import compile_rules
from kvproof.check.runs.session import StageBudget
from kvproof.check.runs.store import Store
from kvproof.check.runs.trust import Trust
from kvproof.check.search import random_walk
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin import manager
from kvproof.check.subjects.registry import find
from kvproof.reports.result import Check, Run
from kvproof.reports.result import Result as Document
from kvproof.spec.verdict import Verdict

FAULTY = f"""{FORGETFUL}
class Twice(Forgetful):
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""


def hunt(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["hunt", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a faulty subject."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    compile_rules()  # once, and on no budget's time
    return tmp_path


def test_runs_passed_over_are_the_first_of_the_seed() -> None:
    whole = random_walk.walk(MANAGERS, manager.BuiltIn(), 4, max_operations=1_200, seconds=100)
    begun = random_walk.walk(MANAGERS, manager.BuiltIn(), 4, max_operations=600, seconds=100)
    ended = random_walk.walk(
        MANAGERS, manager.BuiltIn(), 4, max_operations=600, seconds=100, options=WalkOptions(first_run=begun.num_drawn)
    )
    assert begun.num_drawn > 3
    assert begun.kinds["new"] + ended.kinds["new"] == pytest.approx(whole.kinds["new"], abs=8)
    again = random_walk.walk(
        MANAGERS, manager.BuiltIn(), 4, max_operations=600, seconds=100, options=WalkOptions(first_run=begun.num_drawn)
    )
    assert again.kinds == ended.kinds != begun.kinds


def test_a_hunt_goes_on_with_the_next_run_and_tells_what_it_found_before(folder: Path) -> None:
    options = ("--no-isolation", "--effort", "1500")
    assert hunt("--subject", "faulty.py:Forgetful", "--seed", "3", *options).exit_code == 1
    before = json.loads((folder / ".kvproof" / "hunt.json").read_text())
    found = {check["id"] for check in _refuted(folder)}
    assert before["next_run"]
    assert found

    assert hunt("--resume", ".kvproof", "--subject", "faulty.py:Forgetful", *options).exit_code == 1
    after = json.loads((folder / ".kvproof" / "hunt.json").read_text())
    assert (after["subject"], after["seed"]) == ("faulty.py:Forgetful", 3)
    assert after["next_run"] > before["next_run"]
    assert set(before["scopes"]) <= set(after["scopes"])
    assert len(after["scopes"]) == len(set(after["scopes"]))
    assert found <= {check["id"] for check in _refuted(folder)}


def test_a_hunt_in_two_parts_finds_what_one_long_hunt_finds(folder: Path) -> None:
    make = find("faulty.py:Twice")

    def hunted(bookmark: Bookmark, num_operations: int) -> set[str]:
        bookmark.folder.mkdir(exist_ok=True)
        saving = Saving(make, "faulty.py:Twice", 3, Store(bookmark.folder))
        bookmark.remind(saving)
        stage = walker_stage(make, make(), saving, 1.0, num_operations, keeps_going=True, bookmark=bookmark)
        said = [one for one in stage.run(StageBudget(3, 1_000.0, lambda count: None)) if isinstance(one, Check)]
        found = [one for one in said if one.verdict is Verdict.REFUTED and one.trace]
        document = Document(Run("0", "hunt", "faulty.py:Twice", 3), [*bookmark.earlier, *found])
        Store(bookmark.folder).write_all(document)
        return {f"{one.id} {one.trace}" for one in document.checks}

    whole, first = Bookmark(folder / "whole", HuntProgress("faulty.py:Twice", 3)), folder / "parts"
    parts = hunted(Bookmark(first, HuntProgress("faulty.py:Twice", 3)), 700)
    again = resumed(first, None, None, Trust(is_total=True))
    first_kinds = [one.kind for one in again.progress.findings]
    assert parts | hunted(again, 1_300) == hunted(whole, 2_000)
    kinds = [one.kind for one in whole.progress.findings]
    assert first_kinds == kinds[: len(first_kinds)] != []
    assert len(again.progress.findings) == len(kinds) == len(set(kinds))


def test_a_finding_of_another_property_is_reported_and_is_no_failure(folder: Path) -> None:
    options = ("--no-isolation", "--effort", "1000", "--seed", "3", "--subject", "faulty.py:Twice", "--stop-at-first")
    assert hunt(*options, "--property", "refcount-exact").exit_code == 1
    found = {check["property"]: check.get("excused", "") for check in _refuted(folder)}
    assert found == {"total-calls": "not what is hunted for", "refcount-exact": ""}
    assert json.loads((folder / ".kvproof" / "hunt.json").read_text())["properties"] == ["refcount-exact"]
    assert hunt(*options, "--property", "swap-mapping").exit_code in (0, 4)
    assert {check.get("excused", "") for check in _refuted(folder)} == {"not what is hunted for"}


def _refuted(folder: Path) -> list[dict[str, str]]:
    document = json.loads((folder / ".kvproof" / "result.json").read_text())
    return [check for check in document["checks"] if check["verdict"] == "refuted" and check["trace"]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no subject is given: name one with --subject, or continue a hunt with --resume DIR"),
        (("--resume", "nowhere"), "nowhere holds no hunt that can be resumed: it has no hunt.json"),
        (("--resume", "there", "--seed", "4"), "the hunt in there has seed 3; leave --seed out"),
        (("--resume", "there", "--subject", "kvproof-scheduler"), "the hunt in there has subject kvproof; leave"),
        (("--resume", "there", "--property", "read-back"), "options of the first hunt; leave --property out"),
        (
            ("--subject", "kvproof", "--property", "read-bach"),
            "no property 'read-bach' (did you mean read-back?); there",
        ),
        (("--subject", "kvproof", "--level", "loop"), "kvproof is of level manager, not scheduler; leave --level out"),
        (
            ("--subject", "kvproof", "--level", "page"),
            "there is no level 'page'; the levels are manager, scheduler, pool",
        ),
    ],
)
def test_an_impossible_hunt_is_an_error_of_one_line(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    there = folder / "there"
    there.mkdir()
    (there / "hunt.json").write_text('{"subject": "kvproof", "seed": 3}')
    run = {"version": "0", "command": "hunt", "subject": "kvproof", "seed": 3}
    (there / "result.json").write_text(json.dumps({"run": run, "schema_version": 1}))
    done = hunt(*arguments, "--budget", "1")
    assert done.exit_code == 2
    assert said in done.stderr


def test_fixed_fields_of_a_hunt_are_kept_by_every_run_and_when_it_is_resumed(folder: Path) -> None:
    options = ("--no-isolation", "--budget", "1", "--fix", "block_size=3", "--fix", "caching=false")
    assert hunt("--subject", "faulty.py:Forgetful", "--seed", "3", *options).exit_code == 1
    traces = [json.loads((folder / ".kvproof" / check["trace"]).read_text()) for check in _refuted(folder)]
    assert {check["id"].partition("/")[0] for check in _refuted(folder)} == {"walker"}  # no scope has such blocks
    assert {trace["num_operations_before"] > 0 for trace in traces} == {True}
    kept = json.loads((folder / ".kvproof" / "hunt.json").read_text())
    assert kept["fixed"] == {"block_size": 3, "caching": False}
    assert kept["scopes"] == []
    done = hunt("--resume", ".kvproof", "--fix", "caching=true")
    assert (done.exit_code, "leave --fix out" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("caching", "--fix takes NAME=VALUE"),
        ("cashing=true", "a configuration has no field 'cashing'"),
        ("block_size=0", "block_size is at least 1"),
        ("caching=maybe", "caching is true or false; 'maybe' was given"),
    ],
)
def test_a_field_that_cannot_be_kept_is_refused(said: str, answer: str) -> None:
    done = hunt("--subject", "kvproof", "--fix", said)
    assert done.exit_code == 2
    assert answer in " ".join(done.output.split())


@pytest.mark.parametrize("level", ["pool", "store"])
def test_a_pool_and_a_store_have_no_blocks_of_several_pages(level: str) -> None:
    done = hunt("--subject", f"kvproof-{level}", "--fix", "block_size=2")
    assert done.exit_code == 2
    assert f"--fix: block_size is 1 for a {level}; 2 was given" in " ".join(done.output.split())


def test_properties_of_disabled_features_are_unsupported_in_a_hunt(folder: Path) -> None:
    off = ("--fix", "caching=false", "--fix", "num_host_blocks=0", "--fix", "window=none")
    done = hunt("--subject", "kvproof", "--seed", "1", "--effort", "1000", *off)
    assert done.exit_code in (0, 4)  # as far as it came
    document = json.loads((folder / ".kvproof" / "result.json").read_text())
    verdicts = {check["id"]: check["verdict"] for check in document["checks"]}
    assert verdicts["walker/read-back"] == "not refuted"
    assert {verdicts[f"walker/{name}"] for name in ("hit-computed", "swap-mapping", "window-kept")} == {"unsupported"}
    expected = {
        one["name"] for one in document["witnesses"] if one.get("is_expected", True) and one["judge"] == "walker"
    }
    assert "copy-on-write" in expected
    assert not expected & {"hit", "evict", "slide", "begin_swap", "swap_in"}
