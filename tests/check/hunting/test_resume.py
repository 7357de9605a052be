"""A hunt goes on where it ended: nothing is searched twice or forgotten, and it ends as one that was not stopped."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL
from tests.check.hunting.killed import killed_after
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting import unit
from kvproof.check.hunting.resume import HuntPlan, resumed
from kvproof.check.hunting.store import ResultStore
from kvproof.check.oracle.level import compile_rules
from kvproof.check.search import random_walk
from kvproof.check.search.random_walk import WalkOptions
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin import manager
from kvproof.check.subjects.content import content_of

FAULTY = f"""{FORGETFUL}
class Twice(Forgetful):
    def preempt(self, group):
        raise RuntimeError("no preemption here")
"""


def hunt(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["hunt", *arguments])


@pytest.fixture
def folder(tmp_path: Path, few_scopes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def test_a_hunt_with_more_effort_goes_on_where_it_was_and_ends_as_one_long_hunt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "SMALL", 200)
    subject = ("--subject", "faulty.py:Twice")
    new = (*subject, "--seed", "3", "--no-isolation")
    assert hunt(*new, "--effort", "600").exit_code == 1
    found = {check["id"] for check in _refuted(folder)}
    assert found
    done = noted_units(monkeypatch)
    assert hunt("--resume", ".kvproof", *subject, "--no-isolation").exit_code == 1
    assert done == []  # everything that this effort asks for is in the store
    assert hunt("--resume", ".kvproof", *subject, "--no-isolation", "--effort", "1200").exit_code == 1
    assert {*done} == {3, 4, 5}
    resumed = _checks(folder / ".kvproof")
    assert hunt(*new, "--effort", "1200", "--out", "whole").exit_code == 1
    assert resumed == _checks(folder / "whole")
    assert found <= {check["id"] for check in _refuted(folder)}


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_a_hunt_that_is_killed_and_resumed_ends_as_one_that_was_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """Alone or by workers: what was done before the kill is in the store, whoever did it."""
    monkeypatch.setattr(unit, "SMALL", 200)
    options, seed = ("--subject", "faulty.py:Twice", "--no-isolation"), ("--seed", "3", "--effort", "600")
    assert hunt(*options, *seed, "--out", "whole").exit_code == 1
    killed_after(results_in("whole") // 2, ["hunt", *options, *seed], monkeypatch)
    assert hunt("--resume", ".kvproof", *options, *workers).exit_code == 1
    assert _checks(folder / ".kvproof") == _checks(folder / "whole")
    assert {path.name for path in (folder / ".kvproof" / "crashes").iterdir()} == {
        path.name for path in (folder / "whole" / "crashes").iterdir()
    }


def test_a_hunt_without_space_for_its_results_goes_on_and_can_be_resumed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--subject", "faulty.py:Twice", "--no-isolation", "--seed", "3", "--effort", "1000")
    assert hunt(*options, "--out", "whole").exit_code == 1
    before = ResultStore.__init__

    def small(self: ResultStore, *arguments: Any, **named: Any) -> None:
        before(self, *arguments, **named)
        self._database.execute("PRAGMA max_page_count = 4")  # enough for the plan

    with monkeypatch.context() as patch:
        patch.setattr(ResultStore, "__init__", small)
        assert hunt(*options).exit_code == 1
    assert _checks(folder / ".kvproof") == _checks(folder / "whole")
    assert results_in(".kvproof") < results_in("whole")  # the plan, and what there was space for
    assert hunt("--resume", ".kvproof", *options[:3]).exit_code == 1
    assert _checks(folder / ".kvproof") == _checks(folder / "whole")


@pytest.mark.parametrize("workers", [(), ("--workers", "1")])
def test_a_hunt_that_stops_at_the_first_finding_stops_there_too_when_it_is_resumed(
    folder: Path, workers: tuple[str, ...]
) -> None:
    """The explorer finds the fault; the walk is not begun, in the first hunt or in the one that continues it."""
    subject = ("--subject", "faulty.py:Forgetful", "--no-isolation", "--stop-at-first", *workers)
    assert hunt(*subject, "--seed", "3", "--effort", "600").exit_code == 1
    first = judges_that_searched(folder)
    assert hunt("--resume", ".kvproof", *subject).exit_code == 1
    assert (first, judges_that_searched(folder)) == ({"explorer"}, {"explorer"})


def judges_that_searched(folder: Path) -> set[str]:
    return {check["judge"] for check in _checks(folder / ".kvproof").values() if check["counts"]}


def test_a_new_hunt_in_the_folder_of_another_one_takes_nothing_from_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--subject", "faulty.py:Forgetful", "--seed", "3", "--effort", "1000", "--no-isolation")
    assert hunt(*options).exit_code == 1
    (folder / "faulty.py").write_text(FAULTY.replace("class Forgetful(BuiltIn)", "class Forgetful(BuiltIn, object)"))
    done = noted_units(monkeypatch)
    assert hunt(*options).exit_code == 1
    assert done


def noted_units(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the units of walks that are done from now on."""
    done: list[int] = []

    def do(one: unit.WalkUnit, *more: Any) -> Any:
        done.append(one.index)
        return unit.walked(one, *more)

    monkeypatch.setattr("kvproof.check.hunting.head.walked", do)
    return done


def _checks(folder: Path) -> dict[str, dict[str, Any]]:
    """The checks of a result without times and places."""
    document = json.loads((folder / "result.json").read_text())
    return {
        check["id"]: check | {"seconds": 0, "text": check.get("text", "").replace(str(folder), "")}
        for check in document["checks"]
    }


def test_a_finding_of_another_property_is_reported_and_is_no_failure(folder: Path) -> None:
    options = ("--no-isolation", "--effort", "1000", "--seed", "3", "--subject", "faulty.py:Twice", "--stop-at-first")
    assert hunt(*options, "--property", "refcount-exact").exit_code == 1
    found = {check["property"]: check.get("excused", "") for check in _refuted(folder)}
    assert found == {"total-calls": "not what is hunted for", "refcount-exact": ""}
    assert _plan(folder).properties == ["refcount-exact"]
    assert hunt(*options, "--property", "swap-mapping", "--fix", "block_size=3").exit_code in (0, 4)
    assert {check.get("excused", "") for check in _refuted(folder)} == {"not what is hunted for"}


def results_in(folder: str) -> int:
    """How many results the store of a hunt has."""
    store, _ = resumed(Path(folder), HuntPlan)
    ((number,),) = store._execute("SELECT count(*) FROM results")
    store.close()
    return int(number)


def _plan(folder: Path) -> HuntPlan:
    store, plan = resumed(folder / ".kvproof", HuntPlan)
    store.close()
    return plan


def _refuted(folder: Path) -> list[dict[str, str]]:
    document = json.loads((folder / ".kvproof" / "result.json").read_text())
    return [check for check in document["checks"] if check["verdict"] == "refuted" and check["trace"]]


def test_fixed_fields_of_a_hunt_are_kept_by_every_run_and_when_it_is_resumed(folder: Path) -> None:
    options = ("--no-isolation", "--budget", "1", "--fix", "block_size=3", "--fix", "caching=false")
    assert hunt("--subject", "faulty.py:Forgetful", "--seed", "3", *options).exit_code == 1
    traces = [json.loads((folder / ".kvproof" / check["trace"]).read_text()) for check in _refuted(folder)]
    assert {check["id"].partition("/")[0] for check in _refuted(folder)} == {"walker"}  # no scope has such blocks
    assert {trace["num_operations_before"] > 0 for trace in traces} == {True}
    assert _plan(folder).fixed == {"block_size": 3, "caching": False}
    done = hunt("--resume", ".kvproof", "--fix", "caching=true")
    assert (done.exit_code, "leave --fix out" in done.output) == (2, True)


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


RIGHT = (Path(__file__).parents[3] / "examples" / "forty_lines.py").read_text()
BROKEN = RIGHT.replace("self.refcounts[block] += 1", "pass")


def verdict_of(folder: Path, *arguments: str) -> tuple[int, set[str]]:
    """The exit code of a hunt, and what it refutes."""
    done = hunt(*arguments, "--out", "out", "--no-isolation")
    checks = json.loads((folder / "out" / "result.json").read_text())["checks"]
    return done.exit_code, {check["property"] for check in checks if check["verdict"] == "refuted"}


@pytest.mark.parametrize("name", ["adapter.py:Adapter", "adapter_of_resume:Adapter"])
def test_a_resumed_hunt_searches_again_where_the_subject_or_what_it_imports_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    core = folder / "core_of_resume.py"
    for file in ("adapter.py", "adapter_of_resume.py"):
        (folder / file).write_text("from core_of_resume import Adapter as Own\nclass Adapter(Own): pass\n")
    subject = ("--subject", name, "--effort", "1000")
    for text, expected in ((RIGHT, (0, set())), (BROKEN, (1, {"refcount-exact"})), (RIGHT, (0, set()))):
        core.write_text(text)
        for module in ("core_of_resume", "adapter_of_resume"):
            sys.modules.pop(module, None)
        options = ("--resume", "out") if (folder / "out").exists() else ("--seed", "1")
        assert verdict_of(folder, *subject, *options) == expected


def test_a_resumed_hunt_reports_nothing_that_another_command_has_left_in_the_folder(folder: Path) -> None:
    (folder / "right.py").write_text(RIGHT)
    assert verdict_of(folder, "--subject", "right.py:Adapter", "--effort", "1000", "--seed", "1") == (0, set())
    foreign = ["--subject", "faulty.py:Twice", "--effort", "1000", "--seed", "1", "--no-isolation"]
    assert hunt(*foreign, "--out", "other").exit_code == 1
    (folder / "out" / "result.json").write_text((folder / "other" / "result.json").read_text())
    assert verdict_of(folder, "--subject", "right.py:Adapter", "--resume", "out") == (0, set())


def test_what_is_kept_of_a_program_behind_a_pipe_is_not_used_again() -> None:
    assert content_of("pipe:./manager") != content_of("pipe:./manager")
    assert content_of("kvproof") == content_of("kvproof") == ""


def test_a_damaged_store_of_a_hunt_is_the_users_to_mend(folder: Path) -> None:
    subject = ("--subject", "kvproof", "--effort", "500", "--seed", "1", "--out", "out")
    assert hunt(*subject).exit_code == 4  # too short to reach everything
    (folder / "out" / "hunt.sqlite").write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    for options in (subject, ("--resume", "out")):
        done = hunt(*options)
        assert (done.exit_code, "hunt.sqlite" in done.output) == (2, True), done.output
