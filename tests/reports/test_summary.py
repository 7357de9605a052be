"""The verdict in one sentence, the cells of the table, and the sums of what was done."""

import pytest

from kvproof.check.runs.verdicts import NOTHING_ACCEPTED
from kvproof.reports.result import Check, Result, WitnessCount
from kvproof.reports.summary import (
    advice,
    cell,
    judges,
    left_out,
    properties,
    properties_by_cell,
    sentence,
    work,
    work_line,
)
from kvproof.spec.verdict import Exit, Verdict


def test_a_run_without_findings_says_what_was_done(passed: Result) -> None:
    assert sentence(passed) == (
        "kvproof is not refuted: 2 properties hold as far as checked; "
        "explorer 1,288 states; walker 5,000 operations; 1 unsupported."
    )


def proved(result: Result) -> Result:
    """The result with what the prover found, and nothing else if it is empty."""
    result.checks += [
        Check(f"prover/{name}", "prover", name, Verdict.PROVED, counts={"obligations": 7}) for name in ("a", "b", "c")
    ]
    return result


def test_a_run_that_looked_at_the_specification_only_says_so(passed: Result) -> None:
    passed.checks = []
    assert proved(passed).exit_code() is Exit.OK
    assert sentence(passed).startswith("the specification is not refuted: 3 properties hold as far as checked; ")
    passed.run.subject = "mine.py:Adapter"
    assert passed.exit_code() is Exit.NOTHING_CHECKED
    assert sentence(passed) == (
        "Nothing was checked of mine.py:Adapter: prover checked the specification of kvproof, and made no call of the "
        "subject."
    )
    passed.checks[0].verdict = Verdict.REFUTED
    assert sentence(passed) == "the specification is refuted: a."


def test_what_is_proved_of_the_specification_is_not_counted_as_a_property_of_the_subject(passed: Result) -> None:
    assert sentence(proved(passed)) == (
        "kvproof is not refuted: 2 properties hold as far as checked; explorer 1,288 states; walker 5,000 operations; "
        "prover 7 obligations; 1 unsupported."
    )


def test_a_run_whose_judges_were_refused_every_configuration_has_checked_nothing(passed: Result) -> None:
    passed.run.subject = "mine.py:Adapter"
    for check in passed.checks:
        check.verdict, check.text = Verdict.UNKNOWN, NOTHING_ACCEPTED
    assert proved(passed).exit_code() is Exit.NOTHING_CHECKED  # the prover makes no call of the subject
    assert sentence(passed) == "Nothing was checked of mine.py:Adapter: it refused every configuration."
    assert [one.partition(":")[0] for one in advice(passed)] == [
        "More work does not decide the checks of explorer, walker"
    ]
    passed.checks[0].verdict, passed.run.required = Verdict.EXHAUSTED, ["walker"]
    assert passed.exit_code() is Exit.NOTHING_CHECKED
    passed.run.required = []
    assert passed.exit_code() is Exit.INCONCLUSIVE


def test_a_required_judge_that_checked_nothing_is_named_with_its_reason(passed: Result) -> None:
    passed.run.required = ["walker", "prover", "data plane"]
    passed.checks.append(Check("prover/a", "prover", "a", Verdict.UNSUPPORTED, text="it needs z3"))
    assert passed.exit_code() is Exit.NOTHING_CHECKED
    assert sentence(passed) == (
        "Nothing was checked of kvproof by prover, data plane, which are required (it needs z3)."
    )
    passed.run.required = ["walker"]
    assert passed.exit_code() is Exit.OK


def test_one_property_takes_the_singular(passed: Result) -> None:
    del passed.checks[2:]
    assert sentence(passed) == "kvproof is not refuted: 1 property holds as far as checked; explorer 1,288 states."


def test_a_refuted_run_names_the_properties(refuted: Result) -> None:
    assert sentence(refuted) == "vllm-v0==0.2.7 is refuted: refcount-exact."


def test_an_interrupted_refuted_run_says_both(refuted: Result) -> None:
    refuted.run.is_complete = False
    assert sentence(refuted) == "vllm-v0==0.2.7 is refuted: refcount-exact; the run did not finish."


def test_everything_left_open_is_listed(passed: Result) -> None:
    passed.run.is_complete = False
    passed.checks[0].verdict = Verdict.UNKNOWN
    passed.witnesses = [WitnessCount("pool-full", "walker", 0)]
    assert sentence(passed) == (
        "Inconclusive for kvproof: 1 check is unknown; never reached: pool-full (walker); the run did not finish."
    )


def test_a_run_that_checked_nothing_does_not_sound_like_success(passed: Result) -> None:
    passed.checks = [Check("walker/swap-mapping", "walker", "swap-mapping", Verdict.UNSUPPORTED)]
    assert sentence(passed) == "Nothing was checked of kvproof."


def test_a_missed_hit_is_noted_and_does_not_refute(passed: Result) -> None:
    passed.checks.append(Check("walker/hit-complete", "walker", "hit-complete", Verdict.REFUTED))
    assert sentence(passed).startswith("kvproof is not refuted: 2 properties hold as far as checked; ")
    assert sentence(passed).endswith("noted: hit-complete.")
    assert cell(passed, "hit-complete", "walker") == ("note", Verdict.UNSUPPORTED)


def test_what_one_scope_notes_is_not_called_exhausted_because_of_another(passed: Result) -> None:
    done = [("small", Verdict.EXHAUSTED, ""), ("large", Verdict.UNSUPPORTED, "3 times in 9 transitions")]
    passed.checks += [
        Check(f"explorer/refusal-needed/{scope}", "explorer", "refusal-needed", verdict, note=note)
        for scope, verdict, note in done
    ]
    assert cell(passed, "refusal-needed", "explorer") == ("note", Verdict.UNSUPPORTED)
    assert sentence(passed).startswith("kvproof is not refuted: 2 properties hold as far as checked; ")
    assert sentence(passed).endswith("noted: refusal-needed.")


def test_a_property_with_an_excused_finding_does_not_hold(passed: Result) -> None:
    excused = "known until 2027-01-31: it is repaired in the next release"
    passed.checks.append(
        Check("walker/frame-kept", "walker", "frame-kept", Verdict.REFUTED, text="a table changed", excused=excused)
    )
    assert sentence(passed).startswith("kvproof is not refuted: 1 property holds as far as checked; ")
    assert sentence(passed).endswith("excused: frame-kept.")


@pytest.mark.parametrize(
    ("property", "judge", "expected"),
    [
        ("read-back", "explorer", ("unknown", Verdict.UNKNOWN)),
        ("read-back", "walker", ("not refuted", Verdict.NOT_REFUTED)),
        ("swap-mapping", "walker", ("unsupported", Verdict.UNSUPPORTED)),
        ("swap-mapping", "explorer", ("–", None)),
    ],
)
def test_a_cell_is_the_weakest_verdict_of_its_scopes(
    refuted: Result, property: str, judge: str, expected: tuple[str, Verdict | None]
) -> None:
    assert cell(refuted, property, judge) == expected


def test_the_weakest_verdict_counts(refuted: Result) -> None:
    refuted.checks.append(Check("walker/read-back/append", "walker", "read-back", Verdict.REFUTED, text="it differs"))
    refuted.checks.append(Check("walker/read-back/fork", "walker", "read-back", Verdict.UNKNOWN))
    assert cell(refuted, "read-back", "walker") == ("refuted", Verdict.REFUTED)
    assert properties_by_cell(refuted, "walker") == {
        ("refuted", Verdict.REFUTED): 2,
        ("unsupported", Verdict.UNSUPPORTED): 1,
    }


def test_a_note_is_not_counted_as_refuted(refuted: Result) -> None:
    refuted.checks.append(Check("walker/hit-complete", "walker", "hit-complete", Verdict.REFUTED))
    assert properties_by_cell(refuted, "walker")["note", Verdict.UNSUPPORTED] == 1


def test_a_judge_that_checked_nothing_is_named_with_its_reasons(passed: Result) -> None:
    reason = "the prover needs z3, which is not installed"
    passed.checks += [Check(f"prover/{one}", "prover", one, Verdict.UNSUPPORTED, text=reason) for one in ("a", "b")]
    assert left_out(passed) == [f"prover was left out: {reason}"]


def test_properties_stand_in_the_order_of_the_specification(refuted: Result) -> None:
    refuted.checks.append(Check("walker/of-its-own", "walker", "of-its-own", Verdict.NOT_REFUTED))
    assert properties(refuted) == ["refcount-exact", "read-back", "swap-mapping", "of-its-own"]
    assert judges(refuted) == ["explorer", "walker"]


def test_the_checks_of_one_search_count_its_work_once(refuted: Result) -> None:
    assert work(refuted) == {"explorer": {"states": 1188}, "walker": {"operations": 1_000_000, "runs": 40}}


def test_an_inconclusive_run_says_what_to_do(passed: Result) -> None:
    assert advice(passed) == []
    passed.checks[0].verdict = Verdict.UNKNOWN
    passed.witnesses = [WitnessCount("pool-full", "walker", 0)]
    decide, reach = advice(passed)
    assert decide == "To decide the unknown checks, raise --effort; more work is needed by explorer."
    assert reach.startswith("To reach what was never reached, raise --effort; more work is needed by walker.")
    for reason in ("stopped by --budget after 7 operations", "no time was left"):
        passed.checks[0].text = reason
        assert "raise --budget, or leave it out; " in advice(passed)[0]
    passed.witnesses.append(WitnessCount("pool-full", "explorer operations", 0))
    passed.checks[0].text = NOTHING_ACCEPTED
    refused, reach = advice(passed)
    assert refused.startswith("More work does not decide the checks of explorer: every configuration was refused.")
    assert "needed by walker." in reach
    passed.run.is_complete = False
    for command in ("hunt", "verify"):
        passed.run.command = command
        assert advice(passed)[0].endswith(
            f"again, or continue it with `kvproof {command} --resume` and its --out folder."
        )
    passed.run.command = "explore"
    assert advice(passed)[0] == "The run did not finish: run the command again."


def test_one_of_a_kind_is_written_without_an_s() -> None:
    assert work_line({"operations": 1_000, "runs": 1, "states": 0}) == "1,000 operations, 1 run, 0 states"


def test_the_advice_names_fixed_fields_where_there_are_some(passed: Result) -> None:
    passed.witnesses = [WitnessCount("hit", "walker", 0)]
    (without,) = advice(passed)
    passed.run.options = ["--fix", "num_gpu_blocks=1"]
    (reach,) = advice(passed)
    assert "--fix" not in without
    assert "If --fix excludes it, fix fewer fields." in reach
