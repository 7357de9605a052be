"""Units that are kept: after a change only those are made again that depend on it, and the result is the same."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvproof.audit.mutation.weakenings import weakenings
from kvproof.check.cli.app import app
from kvproof.check.proving import run
from kvproof.check.proving.checks import obligation_check
from kvproof.check.proving.kept import Checked
from kvproof.check.proving.text_digests import digest_of_part
from kvproof.check.proving.units import Made, Units, known_of
from kvproof.models.pin import Pin
from kvproof.models.proofs import vacuity
from kvproof.models.proofs.induction import Induction
from kvproof.models.proofs.obligation import Obligation
from kvproof.models.proofs.units import Unit
from kvproof.models.proofs.vacuity import Hypotheses, firing
from kvproof.models.solvers.answer_cache import VERSIONS_MAX, AnswerCache
from kvproof.models.solvers.solving import TRIVIAL, Answer, ProofOutcome, Settings
from kvproof.models.suites import OF_A_TEXT, Refutation, units_of
from kvproof.models.translation.text import Text, specification
from kvproof.models.translation.translator import Translator
from kvproof.spec.store.machine import STORES
from kvproof.spec.systems import BLOCK_MANAGERS
from kvproof.spec.verdict import Verdict

EVICT = """def evict(state: State, block: BlockId) -> None:
    require(state.status[block] == EVICTABLE, "the block is evictable", "evict-unreferenced")
    forget(state, block)
"""
PART = ("specification/evict", "specification/promote", "vacuity/hypotheses")
PATTERNS = [word for name in PART for word in ("--only", name)]
OF_A_RUN = "cached", "effort"  # counts that say how the answers came
MANY = (pytest.mark.long, pytest.mark.timeout(1800))  # five minutes are not enough on a busy machine


# A run ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the units that are made from now on."""
    names: list[str] = []
    obligations = Unit.obligations

    def noted(unit: Unit) -> list[Obligation]:
        names.append(unit.name)
        return obligations(unit)

    monkeypatch.setattr(Unit, "obligations", noted)
    return names


def prove(*options: str, patterns: Iterable[str] = PATTERNS) -> tuple[int, dict[str, Any], int]:
    """The exit code of a run, its checks without what depends on how the answers came, and how many were cached."""
    done = CliRunner().invoke(app, ["prove", "--jobs", "2", "--timeout", "0.5", "--json", "-", *patterns, *options])
    document = json.loads(done.stdout)
    checks = {
        one["id"]: (one["verdict"], one.get("text"), {k: v for k, v in one["counts"].items() if k not in OF_A_RUN})
        for one in document["checks"]
    }
    return done.exit_code, checks, document["totals"]["cached answers"]


def test_after_a_change_only_what_depends_on_it_is_made_and_the_result_is_that_without_kept_answers(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("kvproof.check.proving.run.refutation_of", lambda *_: Refutation("it is false"))
    (text := tmp_path / "text.py").write_text(EVICT)
    run = partial(prove, "--text", str(text))
    first = run()
    assert (first[0], first[2], made) == (0, 0, ["promote", "evict"])
    made.clear()
    second = run()
    assert (second[:2], made) == (first[:2], [])
    assert second[2] > 0

    text.write_text(EVICT + "    check(state.cached[block], 'evict-unreferenced')\n")
    wrong = run()
    assert (wrong[0], made) == (1, ["evict"])
    made.clear()
    assert run("--no-cache")[:2] == wrong[:2]
    assert made == ["promote", "evict"]

    made.clear()
    text.write_text("# first a comment\n" + EVICT)
    assert run()[:2] == first[:2]
    assert made == []


# One unit -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[AnswerCache]:
    found = AnswerCache(tmp_path / "cache" / "answers.sqlite", "z3 1", Settings())
    yield found
    found.close()


def unit_of(name: str, text: Text | None = None) -> Unit:
    return next(unit for unit in Induction(Translator(text=text)).units() if unit.name == name)


class Run:
    """A run in which one unit was made, and everything is proved and has a model."""

    def __init__(self, unit: Unit, obligations: list[Obligation] | None = None) -> None:
        self.pin, self.hypotheses = Pin(), Hypotheses()
        obligations = unit.obligations() if obligations is None else obligations
        self.made = Made(unit, obligations, [self.pin.add(one) for one in obligations])
        self.checks: dict[str, Checked] = {}
        for one in obligations:
            self.hypotheses.note(one)
            is_trivial = one.is_trivial()
            outcome = ProofOutcome(one, TRIVIAL if is_trivial else Answer(Verdict.PROVED, 0.5, 700), is_trivial)
            self.checks[one.id] = outcome, obligation_check(outcome, "")

    def kept(self, cache: AnswerCache) -> bool:
        """Keep the unit; whether it is found afterwards."""
        units = Units(cache, [self.made])
        units.keep(self.checks, self.pin, {self.made.unit.suite: self.hypotheses})
        return Units(cache).find(self.made.unit) is not None


def test_a_kept_unit_has_what_the_run_had(cache: AnswerCache) -> None:
    unit = unit_of("append")
    run = Run(unit)
    assert run.kept(cache)
    found = Units(cache).find(unit_of("append"))
    assert found is not None
    pin = Pin()
    for (outcome, check, pinned, of_hypotheses), one in zip(known_of(unit, found), run.made.obligations, strict=True):
        pin.add_known(outcome.obligation.id, pinned, found.assumptions)
        assert (outcome.obligation.id, outcome.obligation.place) == (one.id, one.place)
        assert (outcome.is_trivial, outcome.is_cached) == (one.is_trivial(), not one.is_trivial())
        assert check.counts.get("cached", 0) == (not one.is_trivial())
        assert of_hypotheses in run.hypotheses.sets
    assert pin.lines == run.pin.lines


def test_places_are_those_of_the_text_as_it_is_now(cache: AnswerCache) -> None:
    text = specification().rewritten(EVICT, "mine.py")
    lower = specification().rewritten("\n" * 7 + EVICT, "yours.py")
    run = Run(unit_of("evict", text))
    assert run.kept(cache)
    unit = unit_of("evict", lower)
    found = Units(cache).find(unit)
    assert found is not None
    places = [outcome.obligation.place for outcome, *_ in known_of(unit, found)]
    assert places == [one.place for one in unit.obligations()]
    assert "yours.py:9" in places


def test_a_unit_of_another_part_or_other_files_is_not_found(
    cache: AnswerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Run(unit_of("evict")).kept(cache)
    changed = specification().edited("forget", "state.cached[block]", "state.computed[block]")
    assert Units(cache).find(unit_of("evict", changed)) is None
    assert Units(cache).find(unit_of("promote")) is None
    monkeypatch.setattr("kvproof.check.proving.units.digest_of_the_rest", lambda: "other files")
    assert Units(cache).find(unit_of("evict")) is None


def test_a_rule_that_fired_is_searched_again_only_after_a_change(
    cache: AnswerCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def fires(search: object, name: str, effort: int) -> bool:
        searched.append(name)
        return name != "fork"

    monkeypatch.setattr(vacuity, "_fires", fires)
    changed = specification().edited("evict", "EVICTABLE", "FREE")
    for text, expected in (
        (None, ["promote", "evict", "fork", "fork"]),
        (None, ["fork", "fork"]),
        (changed, ["evict"]),
    ):
        searched.clear()
        units = Units(cache)
        rules = ["promote", "evict", *(["fork"] if text is None else [])]
        checks = {one.id: one.verdict for one in run._fired(rules, [], [], text, units)}
        assert checks["vacuity/fires/evict"] is Verdict.PROVED
        assert checks.get("vacuity/fires/fork", Verdict.UNKNOWN) is Verdict.UNKNOWN
        assert searched == expected
        units.keep({}, Pin(), {})


def test_only_a_unit_that_is_wholly_proved_is_kept(cache: AnswerCache) -> None:
    run = Run(unit_of("evict"))
    name = run.made.obligations[-1].id
    outcome, check = run.checks[name]
    run.checks[name] = outcome, replace(check, verdict=Verdict.UNKNOWN)
    assert not run.kept(cache)
    del run.checks[name]
    assert not run.kept(cache)
    run.checks[name] = outcome, check
    assert run.kept(cache)


def test_a_unit_with_hypotheses_of_which_no_model_is_known_is_not_kept(cache: AnswerCache) -> None:
    run = Run(unit_of("evict"))
    run.hypotheses.undecided.append(run.made.obligations[-1])
    assert not run.kept(cache)
    run.hypotheses.undecided.clear()
    run.hypotheses.contradictory.append(run.made.obligations[-1])
    assert not run.kept(cache)


def test_a_unit_with_two_obligations_of_one_name_is_not_kept(cache: AnswerCache) -> None:
    unit = unit_of("evict")
    *others, last = unit.obligations()
    assert not Run(unit, [*others, last, replace(last)]).kept(cache)


def test_a_damaged_unit_is_none(cache: AnswerCache) -> None:
    unit = unit_of("evict")
    assert Run(unit).kept(cache)
    cache._database.execute("UPDATE units SET unit = '{}'")
    assert Units(cache).find(unit) is None
    units = Units(cache, fired=[firing("evict")])
    units.keep({}, Pin(), {})
    assert Units(cache).has_fired(firing("evict"))
    cache._database.execute("UPDATE units SET unit = 'fired', digest = digest || 'x'")
    assert not Units(cache).has_fired(firing("evict"))


def test_a_few_versions_of_a_unit_are_kept(cache: AnswerCache) -> None:
    for number in range(VERSIONS_MAX + 3):
        cache.add_unit("suite/name", f"digest {number}", f"{number}")
        cache.add_unit("suite/other", "digest", "other")
    found = [cache.unit("suite/name", f"digest {number}") for number in range(VERSIONS_MAX + 3)]
    assert found == [None] * 3 + [f"{number}" for number in range(3, VERSIONS_MAX + 3)]
    assert cache.unit("suite/other", "digest") == "other"


# Plants ---------------------------------------------------------------------------------------------------------------


def pins(text: Text, suites: Iterable[str]) -> dict[str, tuple[str, object]]:
    """Of each unit: the digest of its part, and what the pin says of its obligations."""
    pin = Pin()
    found: dict[str, tuple[str, object]] = {}
    for unit in (unit for suite in suites for unit in units_of(suite, text)):
        pinned = [(one.id, pin.add(one)) for one in unit.obligations()]
        found[f"{unit.suite}/{unit.name}"] = digest_of_part("", text, unit.part), pinned
    return found


@pytest.mark.parametrize(
    ("suites", "every"),
    [
        pytest.param(OF_A_TEXT, 700, id="block managers"),
        pytest.param(["store"], 150, id="stores"),
        pytest.param(OF_A_TEXT, 10, id="block managers, many", marks=MANY),
        pytest.param(["store"], 3, id="stores, many", marks=MANY),
    ],
)
def test_a_unit_whose_digest_stays_the_same_after_a_plant_has_the_same_obligations(
    suites: Iterable[str], every: int
) -> None:
    text = specification(STORES if "store" in suites else BLOCK_MANAGERS)
    before, num_same, num_changed = pins(text, suites), 0, 0
    for weakening in list(weakenings(text.system.name))[::every]:
        for name, (digest, pinned) in pins(weakening.text(text), suites).items():
            num_changed += pinned != before[name][1]
            num_same += digest == before[name][0]
            assert digest != before[name][0] or pinned == before[name][1], f"{weakening}: {name}"
    assert num_same > 0
    assert num_changed > 0
