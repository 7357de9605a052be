"""`kvproof prove` as its users call it."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import z3
from typer.testing import CliRunner, Result

import kvproof.reports
from kvproof.check.cli.app import app
from kvproof.check.proving.options import compare_answers
from kvproof.check.proving.run import TEXT_BYTES_MAX
from kvproof.check.proving.selection import Selection
from kvproof.check.runs.store import StoreError
from kvproof.models.obligation import Hypothesis, Obligation, Unit
from kvproof.models.pin import Pin, pinned_names
from kvproof.models.solvers.solving import Answer, ProofOutcome, Settings, decide
from kvproof.models.suites import Refutation
from kvproof.models.translation.text import Text
from kvproof.spec.verdict import Exit, Verdict

X, Y, Z = z3.Ints("x y z")


def kvproof_prove(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["prove", "--jobs", "1", "--no-cache", *arguments])


def mixed() -> Iterator[Obligation]:
    positive = (Hypothesis("positive", X > 0),)
    yield Obligation("mixed", "right", "it is not 0", "conservation", positive, X != 0)
    yield Obligation("mixed", "wrong", "it is 1", "conservation", positive, X == 1, "kvproof/spec/rules.py:7")
    yield Obligation(
        "mixed", "open", "114 is no sum of cubes", "read-back", (), X * X * X + Y * Y * Y + Z * Z * Z != 114
    )


def refute_wrong(obligation: Obligation, text: object, seconds: float) -> Refutation | None:
    return Refutation("x is 2\nand 2 is not 1", {"x": 2}) if obligation.subject == "wrong" else None


@pytest.fixture
def mixed_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite of three obligations, decided in this process, of which one has a counterexample; and no rules."""

    def decide_here(
        workers: object, obligations: Iterable[Obligation], settings: Settings, *, meanwhile: Iterable[object]
    ) -> Iterator[ProofOutcome]:
        yield from (decide(one, settings) for one in obligations)
        deque(meanwhile, maxlen=0)

    monkeypatch.setattr("kvproof.check.proving.questions.decide_by", decide_here)
    makes(monkeypatch, lambda suite: mixed())
    monkeypatch.setattr("kvproof.check.proving.run.SUITES", {"mixed": ""})
    monkeypatch.setattr("kvproof.check.proving.vacuity.RULES", {})
    monkeypatch.setattr("kvproof.check.proving.checks.refutation_of", refute_wrong)
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_lines", lambda suites: pinned(mixed()))
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_names", lambda: {one.id for one in mixed()})
    monkeypatch.setattr("kvproof.check.proving.asked.lints", lambda text=None: iter([]))


def makes(monkeypatch: pytest.MonkeyPatch, obligations_of: Callable[[str], Iterable[Obligation]]) -> None:
    """Let each suite be one unit with these obligations."""

    def units_of(suite: str, text: Text | None) -> Iterator[Unit]:
        yield Unit(suite, suite, lambda: obligations_of(suite))

    monkeypatch.setattr("kvproof.check.proving.asked.units_of", units_of)


def pinned(obligations: Iterable[Obligation]) -> list[str]:
    pin = Pin()
    for one in obligations:
        pin.add(one)
    return list(pin.lines)


def test_the_selected_obligations_are_proved_and_printed(tmp_path: Path) -> None:
    file = tmp_path / "proofs.json"
    done = kvproof_prove("--only", "specification/begin_swap", "--json", str(file))
    assert done.exit_code == 0, done.output
    assert "  begin_swap  " in done.output
    assert "0 unknown, 0 refuted." in done.output
    document = json.loads(file.read_text())
    schema = json.loads((Path(kvproof.reports.__path__[0]) / "result.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert {check["verdict"] for check in document["checks"]} == {"proved"}
    *proved, pin = (check for check in document["checks"] if check["judge"] != "lint")
    assert {check["judge"] for check in proved} == {"prover"}
    assert {check["id"].split("/")[3] for check in proved} == {"begin_swap"}
    assert (pin["id"], pin["counts"]) == ("pin/obligations", {"differences": 0})
    assert document["totals"]["proved"] == len(document["checks"]) > 30
    assert document["run"]["is_complete"]


def test_lints_are_part_of_it() -> None:
    done = kvproof_prove("--only", "lint")
    assert done.exit_code == 0, done.output
    assert "lints: 9 of 9 hold" in done.output


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("only", ["lint", "mixed/right"])
def test_a_broken_lint_is_a_refutation_of_whatever_is_selected(only: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.models.proofs.lint_error import LintError

    findings = [("no-recursion", [LintError("kvproof/spec/rules.py:7", "calls in a circle: a < a")])]
    monkeypatch.setattr("kvproof.check.proving.asked.lints", lambda text=None: iter(findings))
    done = kvproof_prove("--only", only)
    assert done.exit_code == 1
    assert "refuted: lint/no-recursion: kvproof/spec/rules.py:7: calls in a circle: a < a" in done.output
    assert "lints: 0 of 1 hold" in done.output


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize(
    ("patterns", "code"),
    [(["mixed/right"], 0), (["*/wrong/*", "mixed/right/*"], 1), (["mixed/open"], 4), (["mixed/*"], 1)],
)
def test_the_exit_code_tells_the_verdicts_apart(patterns: list[str], code: int) -> None:
    only = [argument for pattern in patterns for argument in ("--only", pattern)]
    assert kvproof_prove(*only, "--timeout", "0.2").exit_code == code


@pytest.mark.usefixtures("mixed_suite")
def test_an_open_obligation_is_reported_with_its_place_and_reason(tmp_path: Path) -> None:
    done = kvproof_prove("--only", "mixed", "--timeout", "0.2", "--json", "-")
    document: dict[str, Any] = json.loads(done.stdout)
    verdicts = {check["id"]: check["verdict"] for check in document["checks"]}
    assert verdicts == {
        "prover/conservation/mixed/right/it is not 0": "proved",
        "prover/conservation/mixed/wrong/it is 1": "refuted",
        "prover/read-back/mixed/open/114 is no sum of cubes": "unknown",
        "pin/obligations": "proved",
    }
    assert "refuted: mixed/wrong/it is 1\n  x is 2\n  and 2 is not 1\n" in done.stderr
    found = {check["id"]: check["counterexample"] for check in document["checks"]}
    assert found["prover/conservation/mixed/wrong/it is 1"] == {"x": 2}
    assert "1 of 3 obligations proved" in done.stderr


@pytest.mark.usefixtures("mixed_suite")
def test_what_only_the_solver_says_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.check.proving.checks.refutation_of", lambda *_: None)
    done = kvproof_prove("--only", "mixed/wrong")
    assert done.exit_code == 4
    assert "unknown: mixed/wrong/it is 1: kvproof/spec/rules.py:7: the solver has a model in which the" in done.output
    assert "1 unknown, 0 refuted" in done.output


RETURNS_EARLY = """
def finish(state: State, seq: int) -> None:
    require(state.live[seq] and state.ending[seq], "the sequence is being freed")
    state.live[seq] = False
    if state.num_full[seq] >= 0:
        return 0
    state.ending[seq] = False
"""
CLAIMS_LITTLE = """
def positive_free_count_means_a_free_block(state: State) -> bool:
    if state.count[0][0] > 1:
        return False
    return True
"""


@pytest.mark.parametrize(
    ("source", "only", "line", "name"),
    [
        (RETURNS_EARLY, "specification/finish", 6, "finish"),
        (CLAIMS_LITTLE, "specification/theorem", 4, "positive_free_count_means_a_free_block"),
    ],
)
def test_an_early_return_is_refused(source: str, only: str, line: int, name: str, tmp_path: Path) -> None:
    text = tmp_path / "mine.py"
    text.write_text(source)
    done = kvproof_prove("--text", str(text), "--only", only)
    assert done.exit_code == 2, done.output
    assert f"mine.py:{line}: {name} returns before its end, or after other statements" in done.output
    assert kvproof_prove("--text", str(text), "--only", "lint").exit_code == 1


def test_a_rule_that_can_never_fire_is_not_proved(tmp_path: Path) -> None:
    """Its guards contradict each other, so each claim about it follows."""
    text = tmp_path / "mine.py"
    text.write_text("def finish(state, seq):\n    require(state.live[seq] and not state.live[seq], 'never')\n")
    done = kvproof_prove("--text", str(text), "--only", "specification/finish/tables_name_blocks")
    assert done.exit_code == 1, done.output
    assert "vacuous: of 1 sets of hypotheses some contradict themselves" in done.output


FORGETS = """
def forget(state: State, block: int) -> None:
    state.cached[block] = False
    state.computed[block] = False
    move_to(state, block, FREE)
"""


def test_another_text_is_proved_or_refuted_with_a_state_before_and_after(tmp_path: Path) -> None:
    text, file = tmp_path / "mine.py", tmp_path / "proofs.json"
    text.write_text(FORGETS)
    name = "specification/evict/nothing_is_known_of_a_free_block"
    done = kvproof_prove("--text", str(text), "--only", name, "--timeout", "0.3", "--json", str(file))
    assert done.exit_code == 1, done.output
    sentence = "A free or reserved block is not cached, and no slot of it counts as written."
    assert f"refuted: {name}\n  {sentence}\n" in done.output
    (check,) = (one for one in json.loads(file.read_text())["checks"] if one["judge"] == "prover")
    assert check["counterexample"]["before"]["num_written"] == check["counterexample"]["after"]["num_written"]
    assert check["text"].splitlines()[1].startswith("Afterwards this is false for b = ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def evict(:", "mine.py:1: this is no Python"),
        ("def evcit(state): pass", "evcit is no function of the text"),
        ("x = 1", "Assign is no function of the text"),
        ("def evict(state, block): pass\0", "mine.py:1: this is no Python"),
        *(
            (f"def evict(state, block):\n    x = {'not ' * number}True", "mine.py: an expression is nested too deeply")
            for number in (100, 500, 3000, 50_000)
        ),
        ("def evict(state, block, block): pass", "mine.py:1: evict has the parameters (state, block, block)"),
        ("#" * (TEXT_BYTES_MAX + 1), "it has more than 1,048,576 bytes"),
        (None, "cannot read"),
    ],
)
def test_a_text_that_cannot_be_read_is_a_mistake_of_the_caller(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    done = kvproof_prove("--text", str(file))
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.usefixtures("mixed_suite")
def test_a_name_that_nothing_has_is_a_mistake_of_the_caller() -> None:
    done = kvproof_prove("--only", "mixed/rihgt")
    assert done.exit_code == 2
    assert "nothing is named mixed/rihgt (did you mean mixed/right?)" in done.stderr


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("typo", ["mixed/rihgt", "nosuch", "*/rihgt/*", "vacuity/fires/evcit"])
@pytest.mark.parametrize("right", ["mixed/right", "lint/guards-first"])
def test_every_pattern_must_match_something(right: str, typo: str) -> None:
    done = kvproof_prove("--only", right, "--only", typo)
    assert done.exit_code == 2
    assert f"nothing is named {typo}" in done.stderr


def test_a_run_that_checks_nothing_does_not_succeed() -> None:
    done = kvproof_prove("--only", "vacuity/hypotheses")
    assert done.exit_code == 5
    assert "Nothing was checked" in done.output


@pytest.mark.usefixtures("mixed_suite")
def test_bounded_obligations_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_suites(suite: str) -> Iterator[Obligation]:
        yield Obligation(suite, "right", "it is not 0", "conservation", (Hypothesis("positive", X > 0),), X != 0)

    makes(monkeypatch, two_suites)
    both = [*two_suites("mixed"), *two_suites("concolic")]
    monkeypatch.setattr("kvproof.check.proving.run.SUITES", {"mixed": "", "concolic": ""})
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_lines", lambda suites: pinned(both))
    done = kvproof_prove("--only", "*/right/*", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["totals"]["bounded obligations"] == 1
    assert (
        "1 of 1 obligations proved for every size, and 1 of 1 obligations proved for objects of at most four blocks "
        "(0 of them as they stand), 0 unknown, 0 refuted."
    ) in done.stderr


WEAKER = """
@theorem("no-leak-at-rest")
def at_rest_every_block_is_unused(state: State) -> bool:
    return True
"""
STARRED = """
@step
def forget(state: State, block: int) -> None:
    state.cached[block] = False
    state.computed[block] = False
    state.num_written[block] = 0
    move_to(state, *[block, FREE])
"""


def test_what_another_text_proves_instead_is_listed_and_no_failure(tmp_path: Path) -> None:
    (text := tmp_path / "weaker.py").write_text(WEAKER)
    done = kvproof_prove("--text", str(text), "--only", "specification/theorem")
    assert done.exit_code == 0, done.output
    assert "\npinned: 2 differences\n" in done.output
    assert "another text than the specification is proved, so they are no failure: what is proved is" in done.output
    assert "vanished obligation: specification/theorem/at_rest_every_block_is_unused" in done.output
    text.write_text("")
    assert "\npinned: no differences\n" in kvproof_prove("--text", str(text), "--only", "specification/theorem").output


def test_a_starred_argument_of_a_step_is_refused_with_its_place(tmp_path: Path) -> None:
    (text := tmp_path / "starred.py").write_text(STARRED)
    done = kvproof_prove("--text", str(text), "--only", "specification/evict")
    assert done.exit_code == 2
    assert f"kvproof: {text}:7: move_to takes 3 arguments\n    move_to(state, *[block, FREE])" in done.output


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("selected", [[], ["--only", "mixed/right"]])
def test_an_obligation_that_is_not_pinned_or_has_vanished_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, selected: list[str]
) -> None:
    right = next(mixed())
    old = Obligation("mixed", "right", "it is not -1", "conservation", right.hypotheses, X != -1)
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_lines", lambda suites: pinned([old]))
    done = kvproof_prove(*selected, "--timeout", "0.2", "--json", "-")
    assert done.exit_code == 1
    (check,) = [one for one in json.loads(done.stdout)["checks"] if one["judge"] == "pin"]
    assert check["verdict"] == "refuted"
    assert "new obligation: mixed/right/it is not 0" in check["text"]
    assert "vanished obligation: mixed/right/it is not -1" in check["text"]
    assert "make proofs-accept" in done.stderr


def test_that_rules_fire_is_part_of_it() -> None:
    done = kvproof_prove("--only", "vacuity/fires/evict", "--only", "vacuity/fires/admit")
    assert done.exit_code == 0, done.output
    assert "not vacuous: 2 of 2 rules fire" in done.output


def test_a_rule_of_stores_is_selected_by_its_name_alone() -> None:
    done = kvproof_prove("--only", "vacuity/fires/store/land")
    assert done.exit_code == 0, done.output
    assert "not vacuous: 1 of 1 rules fire" in done.output
    wrong = kvproof_prove("--only", "vacuity/fires/store/lend")
    assert wrong.exit_code == 2
    assert "did you mean vacuity/fires/store/land?" in wrong.stderr


def test_a_rule_that_never_fires_is_not_passed(tmp_path: Path) -> None:
    text = tmp_path / "mine.py"
    guard = "require(state.status[block] == EVICTABLE and state.refcount[block] > 0, 'never', 'evict-unreferenced')"
    text.write_text(f"def evict(state: State, block: BlockId) -> None:\n    {guard}\n    forget(state, block)\n")
    done = kvproof_prove("--text", str(text), "--only", "vacuity/fires/evict")
    assert done.exit_code == 4
    assert "unknown: vacuity/fires/evict: no small state was found that satisfies every invariant" in done.output
    assert "vacuous: 0 of 1 rules fire" in done.output


@pytest.mark.usefixtures("mixed_suite")
def test_hypotheses_that_contradict_each_other_are_a_refutation(monkeypatch: pytest.MonkeyPatch) -> None:
    def contradictory(suite: str) -> Iterator[Obligation]:
        assumed = (Hypothesis("positive", X > 0), Hypothesis("negative", X < 0))
        yield Obligation("mixed", "anything", "it is 7", "conservation", assumed, X == 7)

    makes(monkeypatch, contradictory)
    done = kvproof_prove("--only", "mixed", "--only", "vacuity/hypotheses")
    assert done.exit_code == 1
    assert "the hypotheses of mixed/anything/it is 7 contradict each other" in done.output


def test_solvers_that_contradict_each_other_refute_the_obligation() -> None:
    one = next(mixed())
    proved, refuted = (ProofOutcome(one, Answer(verdict)) for verdict in (Verdict.PROVED, Verdict.REFUTED))
    for check in (compare_answers(proved, refuted), compare_answers(refuted, proved)):
        assert check.verdict is Verdict.REFUTED
        assert "the solvers contradict each other" in check.text
    assert compare_answers(proved, proved).verdict is Verdict.PROVED


@pytest.mark.usefixtures("mixed_suite")
def test_an_interrupt_before_the_first_obligation_is_named_and_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, meanwhile: object) -> Iterator[ProofOutcome]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("kvproof.check.proving.questions.decide_by", interrupted)
    done = kvproof_prove()
    assert done.exit_code == 130
    assert "note: interrupted" in done.output
    assert "No obligation was decided." in done.output
    assert "selects nothing" not in done.output


@pytest.mark.usefixtures("mixed_suite")
def test_pinned_names_decide_whether_a_pattern_matches_and_new_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def obligations_of(suite: str) -> Iterator[Obligation]:
        made.append(suite)
        return mixed()

    makes(monkeypatch, obligations_of)
    assert kvproof_prove("--only", "mixed/right", "--only", "nosuch").exit_code == 2
    assert made == []
    assert kvproof_prove("--only", "mixed/right").exit_code == 0
    assert made == ["mixed"]
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_names", lambda: set())
    assert kvproof_prove("--only", "mixed/right").exit_code == 0
    assert made == ["mixed"] * 3
    assert kvproof_prove("--only", "mixed/right", "--only", "mixed/nosuch").exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
def test_a_pinned_name_that_is_no_longer_made_is_not_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_names", lambda: {"mixed/right", "mixed/vanished"})
    done = kvproof_prove("--only", "mixed/right", "--only", "mixed/vanished")
    assert done.exit_code == 2
    assert "nothing is named mixed/vanished" in done.stderr


@pytest.mark.parametrize(
    ("pattern", "num_subjects"),
    [
        ("specification/evict", 1),
        ("specification/evict/status_*", 1),
        ("specification/evi*", 1),
        ("specification/e?ict/*", 7),
        ("specification/[ae]vict", 73),
        ("operations", 0),
    ],
)
def test_obligations_of_every_subject_that_a_pattern_may_select_are_made(pattern: str, num_subjects: int) -> None:
    selection = Selection([pattern])
    names = [name.split("/") for name in pinned_names() if name.startswith("specification/")]
    made = {subject for _, subject, *_ in names if selection.may_have_any_of("specification", subject)}
    selected = {subject for suite, subject, *claim in names if selection.has("/".join((suite, subject, *claim)))}
    assert selected <= made
    assert len(made) == num_subjects


def test_a_missing_pin_is_named_before_anything_is_decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kvproof.models.pin.FILE", tmp_path / "pinned.txt")
    done = kvproof_prove("--only", "lint/guards-first")
    assert done.exit_code == 2
    assert f"{tmp_path / 'pinned.txt'} cannot be read" in done.stderr
    assert "make proofs-accept" in done.stderr


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize(("only", "code"), [("mixed/right", 3), ("mixed/wrong", 1)])
def test_what_was_proved_is_reported_if_an_optional_part_finds_no_space(
    only: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space is left", Exit.INTERNAL)

    file = tmp_path / "proofs.json"
    monkeypatch.setattr("kvproof.check.proving.options.write_question", full)
    done = kvproof_prove("--only", only, "--smt2", str(tmp_path), "--json", str(file))
    assert done.exit_code == code
    assert "of 1 obligations proved" in done.output
    assert done.stderr.strip() == "kvproof: no space is left"
    document = json.loads(file.read_text())
    assert [one["judge"] for one in document["checks"]] == ["prover", "pin"]
    assert not document["run"]["is_complete"]
