"""A new property needs its sentence and meaning, its row of coverage, and something that refutes it.

Checks of every level, saved traces, lists of known findings and reports follow by themselves.
"""

import json
from pathlib import Path

import pytest
from tests.lawful import encoders

from kvproof.check.counterexample.store import load, make_trace, save
from kvproof.check.oracle import coverage
from kvproof.check.oracle.level import LEVELS, Level
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Config
from kvproof.check.runs.known_findings import known_findings
from kvproof.check.runs.verdicts import planned_checks
from kvproof.check.subjects.registry import find
from kvproof.reports.result import Check, Result, Run
from kvproof.reports.sarif import sarif
from kvproof.spec.text.properties import MEANINGS, Meaning
from kvproof.spec.verdict import Verdict

NEW = "blocks-are-warm"
STORE = Path(__file__).resolve().parents[3] / "examples" / "forty_line_store.py"
SUBJECTS = {
    "manager": "kvproof",
    "scheduler": "kvproof-scheduler",
    "pool": "kvproof-pool",
    "store": f"{STORE}:Store",
    "encoder": f"{Path(encoders.__file__)}:Oldest",
    "pair": "kvproof-pair",
}


@pytest.fixture(autouse=True)
def _new_property(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MEANINGS, NEW, Meaning("Every block is warm.", "Cold text."))
    row = dict.fromkeys((*SUBJECTS, coverage.RECORDING), coverage.NOTHING) | {"pool": coverage.never("no sun")}
    monkeypatch.setitem(coverage.PROPERTIES, NEW, row)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_each_level_plans_a_check_of_it_or_says_why_not(level: Level) -> None:
    checks = planned_checks(level, "walker", find(SUBJECTS[level.name])())
    (check,) = (check for check in checks if check.property == NEW)
    expected = (Verdict.UNSUPPORTED, "no sun") if level.name == "pool" else (Verdict.UNKNOWN, "not run")
    assert (check.verdict, check.text) == expected


def test_a_trace_of_it_is_saved_and_read_and_a_report_explains_it(tmp_path: Path) -> None:
    found = Counterexample(Config(), [("reset",)], Finding(NEW, "block 3 is cold"))
    path = save(tmp_path, make_trace("kvproof", found, "walker", 1, make=find("kvproof")))
    assert load(path).property == NEW
    check = Check(f"walker/{NEW}", "walker", NEW, Verdict.REFUTED, text="block 3 is cold")
    log = json.loads(sarif(Result(Run("0", "hunt", "s", 1), [check]), tmp_path))
    (rule,) = log["runs"][0]["tool"]["driver"]["rules"]
    assert (rule["id"], "Cold text." in rule["help"]["text"]) == (NEW, True)


def test_it_can_be_a_known_finding(tmp_path: Path) -> None:
    (tmp_path / "kvproof.toml").write_text(f'[[known]]\nproperty = "{NEW}"\nreason = "winter"\nexpires = 2099-01-01\n')
    assert known_findings(tmp_path / "kvproof.toml").entries[0].property == NEW
