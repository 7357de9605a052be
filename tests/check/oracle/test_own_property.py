"""The property that an adapter states itself: it is judged, replayed and saved, and changes no other verdict."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.check import Config, ManagerCan
from kvproof.check.cli.app import app
from kvproof.check.counterexample.store import load
from kvproof.check.oracle.level import level_of
from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.adapter_fault import located
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.own_property import OWN_PROPERTY, OwnState
from kvproof.check.runs.verdicts import planned_checks
from kvproof.check.subjects.registry import find
from kvproof.spec.verdict import Verdict

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN: list[tuple[Any, ...]] = [("new", 1, [1], [0, 1]), ("admit", 1, 2), ("run", 0), ("fork", 1, 2)]
CONFIG = Config(block_size=1, num_gpu_blocks=4)
FILE = """
import forty_lines
from kvproof.check import ManagerCan


class Adapter(forty_lines.Adapter):
    capabilities = ManagerCan(fork=True, own_property="A sequence has one block.")

    def check(self, state):
        {check}
"""


def adapter(tmp_path: Path, check: str, base: str = "forty_lines") -> str:
    """The name of the example with a property of its own."""
    for name in ("forty_lines.py", "forty_lines_broken.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
    path = tmp_path / "own_adapter.py"
    path.write_text(FILE.format(check=check).replace("forty_lines", base))
    return f"{path}:Adapter"


ONE_BLOCK = "return all(len(table) <= 1 for tables in state.tables.values() for table in tables)"


@pytest.fixture(autouse=True)
def _modules_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("forty_lines", "forty_lines_broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_it_is_refuted_at_the_first_state_in_which_it_does_not_hold(tmp_path: Path) -> None:
    finding = finding_of(find(adapter(tmp_path, ONE_BLOCK))(), CONFIG, RUN)
    assert finding is not None
    assert finding.property == OWN_PROPERTY
    assert finding.text == "admit(1): a property of the adapter does not hold: A sequence has one block."


def test_it_sees_what_the_subject_shows_and_what_the_specification_expects(tmp_path: Path) -> None:
    seen: list[OwnState] = []
    subject = find(adapter(tmp_path, "return True"))()
    subject.check = lambda state: seen.append(state) or True  # type: ignore[attr-defined,func-returns-value]
    assert finding_of(subject, CONFIG, RUN) is None
    assert seen[-1] == OwnState(
        {1: [[3, 2]], 2: [[3, 2]]}, (2, 0), [0, 0, 2, 2], [0, 0, 2, 2], None, {1: 2, 2: 2}, {1: 2, 2: 2}
    )
    seen[-1].tables[1][0].clear()
    assert subject.observe().tables[1] == [[3, 2]]


def test_a_property_of_kvproof_comes_first(tmp_path: Path) -> None:
    check = "return state.refcounts == state.shown_refcounts and len(state.tables) < 2"
    finding = finding_of(find(adapter(tmp_path, check, "forty_lines_broken"))(), CONFIG, RUN)
    assert finding is not None
    assert finding.property == "refcount-exact"


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("return state.nothing", "'OwnState' object has no attribute 'nothing'"),
        ("return None", "check must return"),
        ("self.manager.free_blocks.append(0); return True", "check must change nothing that the manager shows"),
    ],
)
def test_a_check_that_fails_changes_something_or_answers_nothing_is_a_fault_of_the_adapter(
    tmp_path: Path, check: str, said: str
) -> None:
    subject = find(adapter(tmp_path, check))()
    with pytest.raises(AdapterError) as error:
        finding_of(subject, CONFIG, RUN)
    text = str(located(error.value, subject))
    assert said in text
    assert "own_adapter.py:" in text


def test_an_adapter_that_states_a_property_must_define_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = find(adapter(tmp_path, "return True"))()
    monkeypatch.delattr(type(subject), "check")
    with pytest.raises(AdapterError, match=r"must define check \(|def check\(self, state: OwnState\) -> bool"):
        subject.open(CONFIG)


def test_only_a_subject_that_states_a_property_has_a_check_of_it(tmp_path: Path) -> None:
    for name, expected in (
        (f"{EXAMPLES}/forty_lines.py:Adapter", []),
        (adapter(tmp_path, "return True"), [Verdict.UNKNOWN]),
    ):
        subject = find(name)()
        checks = planned_checks(level_of(subject), "walker", subject)
        assert [check.verdict for check in checks if check.property == OWN_PROPERTY] == expected


def test_a_hunt_shrinks_saves_and_replays_it_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = adapter(tmp_path, ONE_BLOCK)
    done = CliRunner().invoke(app, ["hunt", "--subject", name, "--seed", "1", "--effort", "300", "--stop-at-first"])
    assert done.exit_code == 1, done.output
    (path,) = (tmp_path / ".kvproof" / "crashes").glob("own-property-*.json")
    assert [operation[0] for operation in load(path).operations] == ["new", "admit"]
    replayed = CliRunner().invoke(app, ["replay", str(path), "--subject", name, "--plain"])
    assert "FAILED" in replayed.output
    assert "a property of the adapter does not hold: A sequence has one block." in replayed.output


def test_the_capability_is_a_sentence() -> None:
    assert ManagerCan().own_property == ""
