"""`kvproof prove` as its users call it."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import z3
from tests.golden_files import Run

import kvproof.reports
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


def test_the_selected_obligations_are_proved_and_printed(tmp_path: Path, prove: Run) -> None:
    file = tmp_path / "proofs.json"
    assert prove("--only", "specification/begin_swap", "--json", file).exit_code == 0
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


def test_lints_are_part_of_it(prove: Run) -> None:
    assert prove("--only", "lint").exit_code == 0


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("only", ["lint", "mixed/right"])
def test_a_broken_lint_is_a_refutation_of_whatever_is_selected(
    only: str, monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    from kvproof.models.proofs.lint_error import LintError

    findings = [("no-recursion", [LintError("kvproof/spec/rules.py:7", "calls in a circle: a < a")])]
    monkeypatch.setattr("kvproof.check.proving.asked.lints", lambda text=None: iter(findings))
    assert prove("--only", only).exit_code == 1


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize(
    ("patterns", "code"),
    [(["mixed/right"], 0), (["*/wrong/*", "mixed/right/*"], 1), (["mixed/open"], 4), (["mixed/*"], 1)],
)
def test_the_exit_code_tells_the_verdicts_apart(patterns: list[str], code: int, prove: Run) -> None:
    only = [argument for pattern in patterns for argument in ("--only", pattern)]
    assert prove(*only, "--timeout", "0.2").exit_code == code


@pytest.mark.usefixtures("mixed_suite")
def test_an_open_obligation_is_reported_with_its_place_and_reason(tmp_path: Path, prove: Run) -> None:
    done = prove("--only", "mixed", "--timeout", "0.2", "--json", "-")
    document: dict[str, Any] = json.loads(done.stdout)
    verdicts = {check["id"]: check["verdict"] for check in document["checks"]}
    assert verdicts == {
        "prover/conservation/mixed/right/it is not 0": "proved",
        "prover/conservation/mixed/wrong/it is 1": "refuted",
        "prover/read-back/mixed/open/114 is no sum of cubes": "unknown",
        "pin/obligations": "proved",
    }
    found = {check["id"]: check["counterexample"] for check in document["checks"]}
    assert found["prover/conservation/mixed/wrong/it is 1"] == {"x": 2}


@pytest.mark.usefixtures("mixed_suite")
def test_what_only_the_solver_says_is_unknown(monkeypatch: pytest.MonkeyPatch, prove: Run) -> None:
    monkeypatch.setattr("kvproof.check.proving.checks.refutation_of", lambda *_: None)
    assert prove("--only", "mixed/wrong").exit_code == 4


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
    ("source", "only"),
    [(RETURNS_EARLY, "specification/finish"), (CLAIMS_LITTLE, "specification/theorem")],
    ids=["a rule", "a theorem"],
)
def test_an_early_return_is_refused(source: str, only: str, tmp_path: Path, prove: Run) -> None:
    text = tmp_path / "mine.py"
    text.write_text(source)
    assert prove("--text", text, "--only", only).exit_code == 2
    assert prove("--text", text, "--only", "lint").exit_code == 1


def test_a_rule_that_can_never_fire_is_not_proved(tmp_path: Path, prove: Run) -> None:
    """Its guards contradict each other, so each claim about it follows."""
    text = tmp_path / "mine.py"
    text.write_text("def finish(state, seq):\n    require(state.live[seq] and not state.live[seq], 'never')\n")
    assert prove("--text", text, "--only", "specification/finish/tables_name_blocks").exit_code == 1


FORGETS = """
def forget(state: State, block: int) -> None:
    state.cached[block] = False
    state.computed[block] = False
    move_to(state, block, FREE)
"""


def test_another_text_is_proved_or_refuted_with_a_state_before_and_after(tmp_path: Path, prove: Run) -> None:
    text, file = tmp_path / "mine.py", tmp_path / "proofs.json"
    text.write_text(FORGETS)
    name = "specification/evict/nothing_is_known_of_a_free_block"
    assert prove("--text", text, "--only", name, "--timeout", "0.3", "--json", file).exit_code == 1
    (check,) = (one for one in json.loads(file.read_text())["checks"] if one["judge"] == "prover")
    assert check["counterexample"]["before"]["num_written"] == check["counterexample"]["after"]["num_written"]
    assert check["text"].splitlines()[1].startswith("Afterwards this is false for b = ")


@pytest.mark.parametrize(
    "text",
    [
        "def evict(:",
        "def evcit(state): pass",
        "x = 1",
        "def evict(state, block): pass\0",
        *(f"def evict(state, block):\n    x = {'not ' * number}True" for number in (100, 500, 3000, 50_000)),
        "def evict(state, block, block): pass",
        "#" * (TEXT_BYTES_MAX + 1),
    ],
    ids=["syntax", "name", "statement", "NUL", "100 nots", "500", "3,000", "50,000", "parameters", "length"],
)
def test_a_text_that_cannot_be_read_is_a_mistake_of_the_caller(tmp_path: Path, text: str, prove: Run) -> None:
    (file := tmp_path / "mine.py").write_text(text)
    assert prove("--text", file).exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
def test_a_name_that_nothing_has_is_a_mistake_of_the_caller(prove: Run) -> None:
    assert prove("--only", "mixed/rihgt").exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("typo", ["mixed/rihgt", "nosuch", "*/rihgt/*", "vacuity/fires/evcit"])
@pytest.mark.parametrize("right", ["mixed/right", "lint/guards-first"])
def test_every_pattern_must_match_something(right: str, typo: str, prove: Run) -> None:
    assert prove("--only", right, "--only", typo).exit_code == 2


def test_a_run_that_checks_nothing_does_not_succeed(prove: Run) -> None:
    assert prove("--only", "vacuity/hypotheses").exit_code == 5


@pytest.mark.usefixtures("mixed_suite")
def test_bounded_obligations_are_counted_apart(monkeypatch: pytest.MonkeyPatch, prove: Run) -> None:
    def two_suites(suite: str) -> Iterator[Obligation]:
        yield Obligation(suite, "right", "it is not 0", "conservation", (Hypothesis("positive", X > 0),), X != 0)

    makes(monkeypatch, two_suites)
    both = [*two_suites("mixed"), *two_suites("concolic")]
    monkeypatch.setattr("kvproof.check.proving.run.SUITES", {"mixed": "", "concolic": ""})
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_lines", lambda suites: pinned(both))
    done = prove("--only", "*/right/*", "--json", "-")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["totals"]["bounded obligations"] == 1


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


def test_what_another_text_proves_instead_is_listed_and_no_failure(tmp_path: Path, prove: Run) -> None:
    (text := tmp_path / "weaker.py").write_text(WEAKER)
    assert prove("--text", text, "--only", "specification/theorem").exit_code == 0
    text.write_text("")
    assert prove("--text", text, "--only", "specification/theorem").exit_code == 0


def test_a_starred_argument_of_a_step_is_refused_with_its_place(tmp_path: Path, prove: Run) -> None:
    (text := tmp_path / "starred.py").write_text(STARRED)
    assert prove("--text", text, "--only", "specification/evict").exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize("selected", [[], ["--only", "mixed/right"]])
def test_an_obligation_that_is_not_pinned_or_has_vanished_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, selected: list[str], prove: Run
) -> None:
    right = next(mixed())
    old = Obligation("mixed", "right", "it is not -1", "conservation", right.hypotheses, X != -1)
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_lines", lambda suites: pinned([old]))
    done = prove(*selected, "--timeout", "0.2", "--json", "-")
    assert done.exit_code == 1
    (check,) = [one for one in json.loads(done.stdout)["checks"] if one["judge"] == "pin"]
    assert check["verdict"] == "refuted"
    assert "new obligation: mixed/right/it is not 0" in check["text"]
    assert "vanished obligation: mixed/right/it is not -1" in check["text"]


def test_that_rules_fire_is_part_of_it(prove: Run) -> None:
    assert prove("--only", "vacuity/fires/evict", "--only", "vacuity/fires/admit").exit_code == 0


def test_a_rule_of_stores_is_selected_by_its_name_alone(prove: Run) -> None:
    assert prove("--only", "vacuity/fires/store/land").exit_code == 0
    assert prove("--only", "vacuity/fires/store/lend").exit_code == 2


def test_a_rule_that_never_fires_is_not_passed(tmp_path: Path, prove: Run) -> None:
    text = tmp_path / "mine.py"
    guard = "require(state.status[block] == EVICTABLE and state.refcount[block] > 0, 'never', 'evict-unreferenced')"
    text.write_text(f"def evict(state: State, block: BlockId) -> None:\n    {guard}\n    forget(state, block)\n")
    assert prove("--text", text, "--only", "vacuity/fires/evict").exit_code == 4


@pytest.mark.usefixtures("mixed_suite")
def test_hypotheses_that_contradict_each_other_are_a_refutation(monkeypatch: pytest.MonkeyPatch, prove: Run) -> None:
    def contradictory(suite: str) -> Iterator[Obligation]:
        assumed = (Hypothesis("positive", X > 0), Hypothesis("negative", X < 0))
        yield Obligation("mixed", "anything", "it is 7", "conservation", assumed, X == 7)

    makes(monkeypatch, contradictory)
    assert prove("--only", "mixed", "--only", "vacuity/hypotheses").exit_code == 1


def test_solvers_that_contradict_each_other_refute_the_obligation() -> None:
    one = next(mixed())
    proved, refuted = (ProofOutcome(one, Answer(verdict)) for verdict in (Verdict.PROVED, Verdict.REFUTED))
    for check in (compare_answers(proved, refuted), compare_answers(refuted, proved)):
        assert check.verdict is Verdict.REFUTED
        assert "the solvers contradict each other" in check.text
    assert compare_answers(proved, proved).verdict is Verdict.PROVED


@pytest.mark.usefixtures("mixed_suite")
def test_an_interrupt_before_the_first_obligation_is_named_and_has_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    def interrupted(*_: object, meanwhile: object) -> Iterator[ProofOutcome]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("kvproof.check.proving.questions.decide_by", interrupted)
    assert prove().exit_code == 130


@pytest.mark.usefixtures("mixed_suite")
def test_pinned_names_decide_whether_a_pattern_matches_and_new_names_are_found(
    monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    made: list[str] = []

    def obligations_of(suite: str) -> Iterator[Obligation]:
        made.append(suite)
        return mixed()

    makes(monkeypatch, obligations_of)
    assert prove("--only", "mixed/right", "--only", "nosuch").exit_code == 2
    assert made == []
    assert prove("--only", "mixed/right").exit_code == 0
    assert made == ["mixed"]
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_names", lambda: set())
    assert prove("--only", "mixed/right").exit_code == 0
    assert made == ["mixed"] * 3
    assert prove("--only", "mixed/right", "--only", "mixed/nosuch").exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
def test_a_pinned_name_that_is_no_longer_made_is_not_selected(monkeypatch: pytest.MonkeyPatch, prove: Run) -> None:
    monkeypatch.setattr("kvproof.check.proving.asked.pinned_names", lambda: {"mixed/right", "mixed/vanished"})
    assert prove("--only", "mixed/right", "--only", "mixed/vanished").exit_code == 2


@pytest.mark.parametrize(
    ("pattern", "num_subjects"),
    [
        ("specification/evict", 1),
        ("specification/evict/status_*", 1),
        ("specification/evi*", 1),
        ("specification/e?ict/*", 7),
        ("specification/[ae]vict", 74),
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


def test_a_missing_pin_is_named_before_anything_is_decided(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prove: Run
) -> None:
    monkeypatch.setattr("kvproof.models.pin.FILE", tmp_path / "pinned.txt")
    assert prove("--only", "lint/guards-first").exit_code == 2


@pytest.mark.usefixtures("mixed_suite")
@pytest.mark.parametrize(("only", "code"), [("mixed/right", 3), ("mixed/wrong", 1)])
def test_what_was_proved_is_reported_if_an_optional_part_finds_no_space(
    only: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prove: Run
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space is left", Exit.INTERNAL)

    file = tmp_path / "proofs.json"
    monkeypatch.setattr("kvproof.check.proving.options.write_question", full)
    done = prove("--only", only, "--smt2", tmp_path, "--json", file)
    assert done.exit_code == code
    document = json.loads(file.read_text())
    assert [one["judge"] for one in document["checks"]] == ["prover", "pin"]
    assert not document["run"]["is_complete"]
