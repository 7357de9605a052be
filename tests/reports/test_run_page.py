"""The page of a run: verdict, findings with their runs, matrices with counts, limits, the command."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reports.conftest import TRACE

from kvproof.reports.counterexample import counterexamples, page_of
from kvproof.reports.counterexample_page import counterexample_page
from kvproof.reports.document import write
from kvproof.reports.frames import PoolFrame, ReplayFrames, StepFrame
from kvproof.reports.result import Check, Result, Run
from kvproof.reports.run_page import run_page
from kvproof.spec.trace import CodePlace
from kvproof.spec.verdict import Verdict


def text_of(page: str) -> str:
    """What a reader sees, with single spaces."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def test_the_page_leads_from_the_verdict_to_the_command(refuted: Result, tmp_path: Path) -> None:
    text = text_of(run_page(refuted, tmp_path))
    places = [
        text.index(part)
        for part in (
            "vllm-v0==0.2.7 is refuted: refcount-exact.",
            "refcount-exact is refuted for vllm-v0==0.2.7",
            "What the verdict rests on",
            "Properties and judges",
            "How far the judges came",
            "What was assumed, and what was not looked at",
            "kvproof verify --subject vllm-v0==0.2.7 --seed 7",
        )
    ]
    assert places == sorted(places)


def test_the_command_that_repeats_a_run_has_the_options_that_decide_it(refuted: Result, tmp_path: Path) -> None:
    refuted.run.options = ["--fix", "block_size=4", "--property", "read back", "--stop-at-first"]
    text = text_of(run_page(refuted, tmp_path))
    assert "--seed 7 --fix block_size=4 --property &#39;read back&#39; --stop-at-first" in text


@pytest.mark.parametrize(
    ("subject", "command"),
    [
        ("the specification", "kvproof explore --effort quick --blocks 3"),
        ("pool.py:Pool", "kvproof explore --subject pool.py:Pool --effort quick --blocks 3"),
    ],
)
def test_a_search_is_repeated_without_a_seed(refuted: Result, tmp_path: Path, subject: str, command: str) -> None:
    refuted.run.command, refuted.run.subject, refuted.run.effort = "explore", subject, "quick"
    refuted.run.options = ["--blocks", "3"]
    assert f"<code>{command}</code>" in run_page(refuted, tmp_path)


def test_a_failing_run_begins_with_the_method_and_the_difference(refuted: Result, tmp_path: Path) -> None:
    trace = replace(TRACE, method=CodePlace("Manager.fork", "examples/broken.py", 14))
    write(tmp_path / "crashes" / "one.json", trace)
    text = text_of(run_page(refuted, tmp_path))
    assert "refuted: refcount-exact. Manager.fork examples/ broken.py, line 14 refcount of block 1: the" in text


def test_a_note_is_not_shown_as_something_that_goes_wrong(passed: Result, tmp_path: Path) -> None:
    passed.checks.append(Check("walker/hit-complete", "walker", "hit-complete", Verdict.REFUTED, text="9 times"))
    text = text_of(run_page(passed, tmp_path))
    assert "Nothing is wrong, and this is slow" in text
    assert "The property: hit-complete" in text
    assert "It goes wrong here" not in text
    assert "with its steps" not in text


def test_a_run_without_findings_says_what_was_checked(passed: Result, tmp_path: Path) -> None:
    text = text_of(run_page(passed, tmp_path))
    assert "This was checked: small scopes of the subject, state by state (explorer): 1,288 states" in text
    assert "0 findings 2 properties judged 5,000 operations 2.5 s" in text


@pytest.mark.parametrize(
    ("seconds", "counts", "figures"),
    [
        (
            61.0,
            {"obligations": 3_195},
            ["0 findings", "1 property judged", "3,195 obligations", "1 min 1 s did not finish"],
        ),
        (0.0, {}, ["0 findings", "1 property judged", "1 obligation"]),
    ],
    ids=["of verify", "killed before its seconds were known"],
)
def test_the_figures_at_the_top_are_those_of_the_work(
    tmp_path: Path, seconds: float, counts: dict[str, int], figures: list[str]
) -> None:
    check = Check("prover/refcount-exact", "prover", "refcount-exact", Verdict.PROVED, 1.0, counts)
    result = Result(Run("0.2", "verify", "kvproof", 1, seconds=seconds), [check])
    shown = re.findall(r"<li><b class=\"\w*\">([^<]*)</b>([^<]*)</li>", run_page(result, tmp_path))
    assert ["".join(one).strip() for one in shown] == figures


def test_a_cell_has_the_weakest_verdict_and_the_counts_of_all_its_scopes(refuted: Result, tmp_path: Path) -> None:
    text = text_of(run_page(refuted, tmp_path))
    assert "unknown 2 scopes, 1,188 states not refuted 1,000,000 operations, 40 runs" in text
    assert "three-holders 0 never reached pool-full 1,200 Not expected of this run, and not reached: reset." in text
    assert "small explorer unknown 900 states" in text
    assert "walker swap-mapping the subject cannot swap" in text


def test_a_scope_that_was_not_entered_is_not_counted_as_searched(refuted: Result, tmp_path: Path) -> None:
    for name in ("large", "huge"):
        later = Check(f"explorer/no-leak/{name}", "explorer", "no-leak", Verdict.UNKNOWN, text="stopped")
        refuted.checks.append(later)
    refuted.checks.append(replace(later, id="explorer/no-leak/small", counts={"states": 31}))
    assert "unknown 1 of 3 scopes, 31 states" in text_of(run_page(refuted, tmp_path))


def test_failures_come_first_then_what_is_excused(refuted: Result, tmp_path: Path) -> None:
    excused = replace(refuted.checks[2], id="walker/other", text="other", signature="other", excused="known until 2027")
    refuted.checks.insert(0, excused)
    page = run_page(refuted, tmp_path)
    assert re.findall(r'<article class="(\w+)" id="([\w-]+)">', page) == [("wrong", "finding-1"), ("open", "finding-2")]
    assert "No failure: known until 2027" in page


def test_the_run_of_a_finding_comes_from_its_page(refuted: Result, tmp_path: Path) -> None:
    assert '<section class="explorer"' not in (page := run_page(refuted, tmp_path))
    assert "The steps of this run are not drawn here" in page
    (found,) = counterexamples(refuted, tmp_path)
    assert found.path is not None
    film = ReplayFrames([StepFrame("open", pools=(PoolFrame("GPU", 1),))], "", False, "", 1)
    page_of(found.path).write_text(counterexample_page(found, film), encoding="utf-8")
    assert '<section class="explorer" id="finding-1-run"' in (page := run_page(refuted, tmp_path))
    assert "The steps of this run are not drawn here" not in page


def test_a_hostile_subject_writes_no_markup(refuted: Result, tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)></script><!--"
    refuted.run.subject = refuted.checks[1].text = refuted.checks[2].text = attack
    refuted.run.assumptions, refuted.messages = [f"{attack}: {attack}"], [attack]
    refuted.run.host[attack] = attack
    page = run_page(refuted, tmp_path)
    assert "<img" not in page
    assert "<!--" not in page
    assert page.count("&lt;img src=x") >= 8


def test_proofs_are_a_matrix_of_rules_and_invariants_with_times() -> None:
    def proof(rule: str, what: str, seconds: float, verdict: Verdict = Verdict.PROVED) -> Check:
        id = f"prover/refcount-exact/specification/{rule}/{what}"
        return Check(id, "prover", "refcount-exact", verdict, seconds)

    checks = [
        proof("fork", "every_holder_is_counted", 0.25),
        proof("admit", "every_holder_is_counted", 0.5, Verdict.UNKNOWN),
        proof("fork", "state.table[seq] has a Seq in range", 1.5),
    ]
    text = text_of(run_page(Result(Run("0.1", "prove", "the specification", 1, is_complete=True), checks), Path()))
    assert "rule every_holder_is_counted fork ✓ 0.25 admit ? 0.50" in text
    assert "fork 1 proved 1.5 s" in text
    assert "proofs about the specification, for every size 1 3 obligations" in text
    assert "kvproof prove The specification Dark" in text
