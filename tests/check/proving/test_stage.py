"""The prover as a judge of `kvproof verify`: a property is proved if every obligation that names it is proved."""

from pathlib import Path

import pytest
import z3

from kvproof.check.oracle.level import LEVELS, MANAGER
from kvproof.check.proving.asked import Asked
from kvproof.check.proving.stage import OF_SYSTEMS, Proofs, prover_stage
from kvproof.check.runs.session import StageBudget
from kvproof.models.obligation import Hypothesis, Obligation, Unit
from kvproof.models.proofs.lint_error import LintError
from kvproof.models.suites import SUITES, Refutation, obligations_of
from kvproof.reports.result import Check
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.verdict import Verdict

X = z3.Int("x")
POSITIVE = (Hypothesis("positive", X > 0),)
RIGHT = Obligation("mixed", "right", "it is not 0", "conservation", POSITIVE, X != 0)
RIGHT_TOO = Obligation("mixed", "right", "it is more than -1", "read-back", POSITIVE, X > -1)
WRONG = Obligation("mixed", "wrong", "it is 1", "read-back", POSITIVE, X == 1)
OUT_OF_RANGE = Obligation("mixed", "wrong", "it is in range", "well-defined", POSITIVE, X < 9)


def checks_of(obligations: list[Obligation], seconds: float = 60.0) -> dict[str, Check]:
    checks = Proofs(StageBudget(1, seconds, lambda count: None)).checks(iter(obligations))
    return {one.property: one for one in checks if isinstance(one, Check)}


def test_a_property_is_proved_if_all_that_names_it_is() -> None:
    checks = checks_of([RIGHT, RIGHT_TOO])
    assert [name for name, one in checks.items() if one.verdict is Verdict.PROVED] == ["read-back", "conservation"]
    assert checks["conservation"].counts == {"obligations": 2}
    assert {one.verdict for name, one in checks.items() if name not in ("conservation", "read-back")} == {
        Verdict.UNSUPPORTED
    }


def test_one_open_obligation_leaves_its_property_unknown_and_no_other() -> None:
    checks = checks_of([RIGHT, RIGHT_TOO, WRONG])
    assert checks["conservation"].verdict is Verdict.PROVED
    assert checks["read-back"].verdict is Verdict.UNKNOWN
    assert checks["read-back"].text == "neither proved nor refuted: mixed/wrong/it is 1"


def test_what_a_run_shows_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Refutation("x is 2", {"x": 2})
    monkeypatch.setattr("kvproof.check.proving.stage.refutation_of", lambda one: found)
    check = checks_of([WRONG])["read-back"]
    assert check.verdict is Verdict.REFUTED
    assert check.text == "the specification itself: mixed/wrong/it is 1\nx is 2"
    assert check.counterexample == {"x": 2}


def test_no_property_is_proved_while_a_read_may_be_out_of_range() -> None:
    checks = checks_of([RIGHT, OUT_OF_RANGE])
    assert checks["conservation"].verdict is Verdict.UNKNOWN
    assert checks["conservation"].text == "not proved to be well-defined: mixed/wrong/it is in range"
    assert checks["well-defined"].verdict is Verdict.UNKNOWN


def test_without_time_everything_is_unknown_and_nothing_is_asked() -> None:
    checks = checks_of([RIGHT], seconds=0.1)
    assert {one.verdict for one in checks.values()} == {Verdict.UNKNOWN}
    assert {one.text for one in checks.values()} == {"the time ended after 0 obligations"}


def test_the_stage_promises_every_property() -> None:
    stage = prover_stage(1, MANAGER)
    assert [one.property for one in stage.planned_checks] == list(MEANINGS)


def test_every_level_has_suites_and_those_of_stores_are_for_stores_encoder_outputs_and_pairs() -> None:
    of_levels = {level.name: OF_SYSTEMS[level.system.name] for level in LEVELS}
    for name, suites in of_levels.items():
        assert set(suites) <= set(SUITES)
        assert ("store" in suites) == (name in ("store", "encoder", "pair"))


def mapping_checks() -> dict[str, Check]:
    asked = Asked(["mapping"])
    proofs = Proofs(StageBudget(1, 60.0, lambda count: None), why_meaningless=asked.why_meaningless)
    return {one.property: one for one in proofs.checks(asked.obligations()) if isinstance(one, Check)}


def test_nothing_is_proved_unless_what_is_proved_is_what_is_pinned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = list(obligations_of("mapping"))
    proved = {name for name, one in mapping_checks().items() if one.verdict is Verdict.PROVED}
    assert proved == {one.property for one in whole}

    def text_of_all() -> str:
        left = mapping_checks()
        assert {left[name].verdict for name in proved} == {Verdict.UNKNOWN}
        (text,) = {left[name].text for name in proved}
        return text

    monkeypatch.setattr("kvproof.models.pin.FILE", tmp_path / "pinned.txt")
    assert text_of_all().startswith(f"{tmp_path / 'pinned.txt'} cannot be read")
    monkeypatch.undo()
    unit = Unit("mapping", "mapping", lambda: whole[1:])
    monkeypatch.setattr("kvproof.check.proving.asked.units_of", lambda *_: [unit])
    assert text_of_all().startswith("no proof counts: pin/obligations: what is proved is not what is pinned: vanished ")


def test_nothing_is_proved_of_a_text_in_which_a_lint_finds_something(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [("guards-first", [LintError("rules.py:7", "a guard after a write"), LintError("rules.py:9", "another")])]
    monkeypatch.setattr("kvproof.check.proving.asked.lints", lambda: iter(found))
    checks = mapping_checks()
    assert not any(one.verdict is Verdict.PROVED for one in checks.values())
    assert checks["mapping-hazard-free"].text == (
        "no proof counts: lint/guards-first: rules.py:7: a guard after a write; rules.py:9: another"
    )
