"""A refutation for people, in every report: the same argument, whole."""

import io
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kvproof.reports.counterexample import counterexamples, shortest_first
from kvproof.reports.document import decode, encode, read, write
from kvproof.reports.junit import junit
from kvproof.reports.markdown import SUMMARY_BYTES_MAX, markdown
from kvproof.reports.result import Check, Refusals, Result, WitnessCount
from kvproof.reports.run_page import run_page
from kvproof.reports.sarif import sarif
from kvproof.reports.terminal import plain_text, print_report
from kvproof.spec.text.properties import MEANINGS
from kvproof.spec.trace import Trace
from kvproof.spec.verdict import Verdict

TEXT = "refcount of block 1: the specification says 1, the subject 2"


def argument(folder: Path) -> str:
    return f"""\
refcount-exact is refuted for vllm-v0==0.2.7 at step 2 (walker).
  refcount of block 1: the specification says 1, the subject 2
  A block's refcount is the number of block-table entries that name it.
  Repeat: kvproof replay {folder}/crashes/one.json
  The steps, with num_gpu_blocks 3, window 8:
    1  new("p", 10 tokens)
    2  fork("p", "c")
  Saved: {folder}/crashes/one.json"""


def junit_of(result: Result, folder: Path) -> ElementTree.Element:
    return ElementTree.fromstring(junit(result, folder))


def test_the_argument_has_the_agreed_order(refuted: Result, tmp_path: Path) -> None:
    (found,) = counterexamples(refuted, tmp_path)
    assert found.text() == argument(tmp_path)


def test_steps_that_were_not_described_are_shown_as_calls(refuted: Result, tmp_path: Path) -> None:
    path = tmp_path / "crashes" / "one.json"
    write(path, replace(read(path, Trace), steps=[]))
    (found,) = counterexamples(refuted, tmp_path)
    assert "    1  new(0, [0], [5])\n    2  fork(0, 1)\n" in found.text()


def test_a_subject_that_breaks_when_it_is_made_needs_no_step(refuted: Result, tmp_path: Path) -> None:
    path = tmp_path / "crashes" / "one.json"
    write(path, replace(read(path, Trace), steps=[], operations=[]))
    (found,) = counterexamples(refuted, tmp_path)
    assert "  No step is needed, with num_gpu_blocks 3, window 8.\n  Saved: " in found.text()


def test_of_a_run_of_many_steps_the_first_and_the_last_are_listed(refuted: Result, tmp_path: Path) -> None:
    path = tmp_path / "crashes" / "one.json"
    operations = [["observe", number] for number in range(1, 1_601)]
    write(path, replace(read(path, Trace), steps=[], operations=operations))
    (found,) = counterexamples(refuted, tmp_path)
    listed = [line.strip() for line in found.text().splitlines() if "observe(" in line or "…" in line]
    assert listed[99:102] == [
        "100  observe(100)",
        "… 1,000 steps are not listed; the saved trace has them all",
        "1101  observe(1101)",
    ]
    assert (listed[0], listed[-1], len(listed)) == ("1  observe(1)", "1600  observe(1600)", 601)


def test_a_run_of_600_steps_is_listed_whole(refuted: Result, tmp_path: Path) -> None:
    path = tmp_path / "crashes" / "one.json"
    write(path, replace(read(path, Trace), steps=[], operations=[["observe", number] for number in range(600)]))
    (found,) = counterexamples(refuted, tmp_path)
    assert found.text().count("observe(") == 600
    assert "not listed" not in found.text()


def test_the_regression_test_beside_a_trace_is_named(refuted: Result, tmp_path: Path) -> None:
    (tmp_path / "crashes" / "test_one.py").touch()
    (found,) = counterexamples(refuted, tmp_path)
    assert f"  Saved: {tmp_path}/crashes/one.json · test_one.py" in found.lines()


def test_a_path_with_spaces_can_be_pasted_into_a_shell(refuted: Result, tmp_path: Path) -> None:
    folder = tmp_path / "my results"
    (folder / "crashes").mkdir(parents=True)
    (tmp_path / "crashes" / "one.json").rename(folder / "crashes" / "one.json")
    (found,) = counterexamples(refuted, folder)
    assert found.replay == f"kvproof replay '{folder}/crashes/one.json'"


def test_a_lost_trace_is_reported_and_does_not_hide_the_refutation(refuted: Result, tmp_path: Path) -> None:
    (tmp_path / "crashes" / "one.json").unlink()
    (found,) = counterexamples(refuted, tmp_path)
    assert found.text() == (
        "refcount-exact is refuted for vllm-v0==0.2.7 (walker).\n"
        "  refcount of block 1: the specification says 1, the subject 2\n"
        "  A block's refcount is the number of block-table entries that name it.\n"
        f"  cannot read {tmp_path}/crashes/one.json: No such file or directory"
    )


def test_what_broke_in_the_same_way_is_argued_once_by_the_shortest_trace(refuted: Result, tmp_path: Path) -> None:
    trace = read(tmp_path / "crashes" / "one.json", Trace)
    write(tmp_path / "crashes" / "two.json", replace(trace, operations=trace.operations[:1], steps=[]))
    numbers = TEXT.replace("block 1", "block 20")
    refuted.checks.append(replace(refuted.checks[2], judge="machine", trace="crashes/two.json", text=numbers))
    refuted.checks.append(replace(refuted.checks[2], judge="explorer", text="another way"))
    groups = shortest_first(counterexamples(refuted, tmp_path))
    judges = [(first.check.judge, [other.check.judge for other in others]) for first, others in groups]
    assert judges == [("machine", ["walker"]), ("explorer", [])]
    lines = plain_text(refuted, tmp_path).splitlines()
    at = lines.index("  Also found by walker, once")
    assert lines[at + 1] == f"  Saved: {tmp_path}/crashes/one.json"


def test_the_plain_report_is_whole(refuted: Result, tmp_path: Path) -> None:
    assert (
        plain_text(refuted, tmp_path)
        == f"""\
{argument(tmp_path)}

 property       | explorer | walker
----------------+----------+-------------
 refcount-exact | –        | refuted
 read-back      | unknown  | not refuted
 swap-mapping   | –        | unsupported

explorer: 1,188 states
walker: 1,000,000 operations, 40 runs
walker reached: pool-full 1,200
walker never reached: three-holders
walker did not reach, as expected: reset
unknown: explorer small: read-back: no time
unsupported: walker: swap-mapping: the subject cannot swap

vllm-v0==0.2.7 is refuted: refcount-exact. 2.5 s, seed 7.
"""
    )


def test_the_plain_report_cuts_no_long_line(refuted: Result, tmp_path: Path) -> None:
    refuted.checks[2].text = "word " * 2000 + "end"
    assert refuted.checks[2].text in plain_text(refuted, tmp_path)


def test_a_reason_of_unknown_checks_is_not_repeated_as_a_note(refuted: Result, tmp_path: Path) -> None:
    (unknown,) = [check for check in refuted.checks if check.verdict is Verdict.UNKNOWN]
    unknown.text = "stopped by --budget"
    refuted.messages = [f"{unknown.judge}: stopped by --budget", "another message"]
    text = plain_text(refuted, tmp_path)
    assert text.count("stopped by --budget") == 1
    assert "note: another message" in text


def test_brackets_in_a_message_are_no_markup(
    refuted: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuted.checks[2].text = "table [red] is [1, 2], not [/]"
    print_report(refuted, tmp_path, Console(force_terminal=True, width=60))
    assert "table [red] is [1, 2], not [/]" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_report_at_a_terminal_fits_its_width_and_cuts_nothing(
    refuted: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    refuted.checks[1].text = "the search of this scope did not end, because the states of the scope are too many for it"
    refuted.checks.append(Check("prover/cow-copied", "prover", "cow-copied", Verdict.PROVED))
    print_report(refuted, tmp_path, Console(force_terminal=True, no_color=True, color_system=None, width=width))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("refcount-exact is refuted for vllm-v0==0.2.7 at step")
    assert [line for line in lines if len(line) > width and not line.startswith(("  Repeat: ", "  Saved: "))] == []
    assert "…" not in "".join(lines)
    assert " ".join(" ".join(lines).split()).count("because the states of the scope are too many for it") == 1
    assert lines[-1] == "vllm-v0==0.2.7 is refuted: refcount-exact. 2.5 s, seed 7."


def test_a_terminal_too_narrow_for_the_table_has_a_line_for_each_judge(
    refuted: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(refuted, tmp_path, Console(force_terminal=True, no_color=True, color_system=None, width=30))
    lines = capsys.readouterr().out.splitlines()
    assert "explorer: 1 unknown" in lines
    assert "…" not in "".join(lines)


def test_a_failure_comes_whole_before_an_excused_finding_that_broke_alike(refuted: Result, tmp_path: Path) -> None:
    known = replace(refuted.checks[2], id="explorer/refcount-exact", judge="explorer", excused="known until 2027-01-31")
    refuted.checks.insert(0, known)
    lines = plain_text(refuted, tmp_path).splitlines()
    failure = lines.index("refcount-exact is refuted for vllm-v0==0.2.7 at step 2 (walker).")
    excused = lines.index("refcount-exact is noted for vllm-v0==0.2.7 at step 2 (explorer).")
    assert failure == 0 < excused
    assert [line for line in lines if line.startswith("  Repeat: ")] == [lines[failure + 3], lines[excused + 4]]


def test_a_note_says_that_it_is_no_failure(passed: Result, tmp_path: Path) -> None:
    passed.checks.append(Check("walker/hit-complete", "walker", "hit-complete", Verdict.REFUTED, text="9 times"))
    assert plain_text(passed, tmp_path).splitlines()[:4] == [
        f"hit-complete is noted for {passed.run.subject} (walker).",
        "  9 times",
        "  A prefix that is cached, computed and equal is found.",
        "  Nothing wrong, only slow: this property is a note, not a failure.",
    ]


def test_junit_has_a_case_for_each_check(refuted: Result, tmp_path: Path) -> None:
    suite = junit_of(refuted, tmp_path)[0]
    assert [(case.get("classname"), case.get("name"), [child.tag for child in case]) for case in suite[1:]] == [
        ("kvproof.explorer", "read-back (tiny)", ["system-out"]),
        ("kvproof.explorer", "read-back (small)", ["error", "system-out"]),
        ("kvproof.walker", "refcount-exact", ["failure", "system-out"]),
        ("kvproof.walker", "read-back", ["system-out"]),
        ("kvproof.walker", "swap-mapping", ["skipped", "system-out"]),
    ]
    assert [suite.get(name) for name in ("tests", "failures", "skipped", "errors")] == ["5", "1", "1", "1"]


def test_junit_carries_the_argument_the_reasons_and_how_to_repeat_the_run(refuted: Result, tmp_path: Path) -> None:
    suite = junit_of(refuted, tmp_path)[0]
    failure = suite.find(".//failure")
    assert failure is not None
    assert failure.text == argument(tmp_path)
    reasons = [(case.tag, case.get("message")) for case in suite.iter() if case.tag in ("error", "skipped")]
    assert reasons == [("error", "unknown: no time"), ("skipped", "unsupported: the subject cannot swap")]
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert properties["seed"] == "7"
    assert properties["subject"] == "vllm-v0==0.2.7"
    assert properties["version"] == "0.1.0"
    output = suite.find("testcase[@name='refcount-exact']/system-out")
    assert output is not None
    assert output.text is not None
    assert output.text.endswith(f"kvproof replay {tmp_path}/crashes/one.json")


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda run: run.witnesses.append(WitnessCount("pool full", "walker", 0)), "inconclusive", "pool full"),
        (lambda run: setattr(run.run, "is_complete", False), "inconclusive", "did not finish"),
        (lambda run: run.checks.clear(), "nothing_checked", "Nothing was checked"),
    ],
)
def test_a_run_that_is_not_decided_does_not_pass_in_junit(
    passed: Result, tmp_path: Path, change: Callable[[Result], Any], kind: str, says: str
) -> None:
    assert junit_of(passed, tmp_path)[0].find("testcase[@name='the run is decided']") is None
    change(passed)
    suite = junit_of(passed, tmp_path)[0]
    error = suite.find("testcase[@name='the run is decided']/error")
    assert error is not None
    assert (suite.get("errors"), error.get("type")) == ("1", kind)
    assert says in (error.get("message") or "")


def test_the_times_of_junit_add_up_to_those_of_the_judges(passed: Result, tmp_path: Path) -> None:
    walked = [Check(f"walker/{name}", "walker", name, Verdict.NOT_REFUTED, 45.0) for name in MEANINGS]
    passed.checks = [*walked, Check("prover/read-back", "prover", "read-back", Verdict.PROVED, 2.0)]
    suite = junit_of(passed, tmp_path)[0]
    assert float(suite.get("time") or 0) == pytest.approx(47.0, abs=0.1)
    times = [case.get("time") for case in suite.iter("testcase")]
    assert times[-2:] == [str(round(45 / len(MEANINGS), 3)), "2.0"]


def test_junit_is_readable_whatever_an_engine_says(refuted: Result, tmp_path: Path) -> None:
    refuted.checks[2].text = "raised '\x00\x1b[31m <&> ]]> \ud800 \uffff é'"
    failure = junit_of(refuted, tmp_path).find(".//failure")
    assert failure is not None
    assert "raised '\\x00\\x1b[31m <&> ]]> \\ud800 \\xffff é'" in (failure.text or "")


def test_every_report_says_what_the_subject_refused(passed: Result, tmp_path: Path) -> None:
    passed.refusals = [Refusals("walker", 271, 680, {"large blocks": 270, "a \x1b[31mred one": 1})]
    console = Console(file=io.StringIO(), width=200)
    print_report(passed, tmp_path, console)
    assert isinstance(console.file, io.StringIO)
    texts = {
        "terminal": console.file.getvalue(),
        "file": plain_text(passed, tmp_path),
        "markdown": markdown(passed, tmp_path),
        "page": run_page(passed, tmp_path),
        "junit": junit(passed, tmp_path).decode(),
        "sarif": sarif(passed, tmp_path).decode(),
    }
    line = "walker: the subject refused 271 of 680 configurations: large blocks (270); a "
    assert {name for name, text in texts.items() if line not in text} == set()
    assert {name for name, text in texts.items() if "\x1b" in text} == set()
    assert "; 271 configurations refused by the subject. " in texts["file"]
    assert decode(encode(passed), Result, "it").refusals == passed.refusals


def test_a_note_is_no_failure_in_junit(passed: Result, tmp_path: Path) -> None:
    passed.checks.append(
        Check("walker/hit-complete", "walker", "hit-complete", Verdict.REFUTED, text="missed 4 tokens")
    )
    suite = junit_of(passed, tmp_path)[0]
    assert suite.get("failures") == "0"
    output = suite.find("testcase[@name='hit-complete']/system-out")
    assert output is not None
    assert "missed 4 tokens" in (output.text or "")


def test_the_summary_begins_with_the_verdict_and_folds_the_argument(refuted: Result, tmp_path: Path) -> None:
    text = markdown(refuted, tmp_path)
    verdict = "❌ **vllm-v0==0.2.7 is refuted: refcount-exact.** Seed 7."
    assert text.startswith(f"## kvproof verify\n\n{verdict}\n\nIf it is broken, a user of the server sees:")
    assert "| read-back | unknown | not refuted |" in text
    details = argument(tmp_path).partition("\n")[2]
    assert f"at step 2 (walker).</summary>\n\n```text\n{details}\n```\n\n</details>" in text
    assert text.index("<details open>") < text.index("| property |")


def test_the_summary_shows_a_mechanism_once_and_says_who_else_found_it(refuted: Result, tmp_path: Path) -> None:
    check = refuted.checks[2]
    refuted.checks.append(replace(check, id="explorer/refcount-exact", judge="explorer"))
    text = markdown(refuted, tmp_path)
    assert (text.count("<details"), text.count("Also found by explorer, once")) == (1, 1)


def test_a_run_in_which_nothing_is_drawn_names_no_seed(refuted: Result, tmp_path: Path) -> None:
    assert ("Seed 7" in markdown(refuted, tmp_path), "seed 7" in plain_text(refuted, tmp_path)) == (True, True)
    refuted.run.command = "validate"
    assert ("eed 7" in markdown(refuted, tmp_path), "eed 7" in plain_text(refuted, tmp_path)) == (False, False)


def test_the_summary_is_not_broken_by_what_an_engine_says(refuted: Result, tmp_path: Path) -> None:
    refuted.checks[2].text = "text ``` and </details>"
    refuted.messages = ["a | b <b>c</b>\n## d"]
    text = markdown(refuted, tmp_path)
    assert "\n````text\n" in text
    assert "- a \\| b &lt;b&gt;c&lt;/b&gt; ## d" in text


def test_the_summary_stays_below_its_limit_and_says_what_it_left_out(refuted: Result, tmp_path: Path) -> None:
    check = refuted.checks[2]
    check.text = "é" * 200_000
    checks = [replace(check, id=f"walker/refcount-exact/{name}", signature=name) for name in map(str, range(40))]
    refuted.checks = checks
    refuted.messages = ["m" * 2_000_000]
    text = markdown(refuted, tmp_path)
    assert len(text.encode()) < SUMMARY_BYTES_MAX
    num_listed = text.count("<details open>")
    assert num_listed > 5
    assert f"{40 - num_listed} more counterexamples are in report.txt." in text


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ("../one.json", "'../one.json' is not in the folder"),
        ("/etc/passwd", "'/etc/passwd' is not in the folder"),
        ("crashes/link.json", "'crashes/link.json' is not in the folder"),
        ("crashes/loop.json", "loop.json"),
        ("a\0b", "is no file name"),
        ("a" * 5_000, "cannot read"),
        ("crashes", "crashes: Is a directory"),
        ("crashes/pipe.json", "pipe.json: it is not a regular file"),
        ("crashes/long.json", "long.json: it has more than 16,777,216 bytes"),
        ("crashes/empty.json", "empty.json is not JSON"),
        ("crashes/deep.json", "deep.json is not JSON"),
    ],
)
def test_a_report_reads_only_regular_files_of_its_folder(
    refuted: Result, tmp_path: Path, trace: str, problem: str
) -> None:
    crashes, outside = tmp_path / "run" / "crashes", tmp_path / "one.json"
    crashes.mkdir(parents=True)
    outside.write_bytes((tmp_path / "crashes" / "one.json").read_bytes())
    (crashes / "link.json").symlink_to(outside)
    (crashes / "loop.json").symlink_to(crashes / "loop.json")
    os.mkfifo(crashes / "pipe.json")
    with (crashes / "long.json").open("wb") as file:
        file.truncate((1 << 24) + 1)
    (crashes / "empty.json").touch()
    (crashes / "deep.json").write_text("[" * 100_000)
    checks = [replace(check, trace=trace if check.trace else None) for check in refuted.checks]
    (found,) = counterexamples(replace(refuted, checks=checks), tmp_path / "run")
    assert (found.trace, found.path) == (None, None)
    assert problem in found.problem


def test_an_operation_of_a_trace_that_is_empty_is_shown(refuted: Result, tmp_path: Path) -> None:
    path = tmp_path / "crashes" / "one.json"
    write(path, replace(read(path, Trace), steps=[], operations=[[]]))
    (found,) = counterexamples(refuted, tmp_path)
    assert "    1  nothing()\n" in found.text()
