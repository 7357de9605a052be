"""SARIF: each finding where it was saved, with its steps; nothing that was left open looks like success."""

import json
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from kvproof.reports import address
from kvproof.reports.document import read, write
from kvproof.reports.result import Check, Result, Run
from kvproof.reports.sarif import sarif
from kvproof.spec.trace import CodePlace, Trace
from kvproof.spec.verdict import Verdict

# The official schema, see the file beside it for its licence. What it does not know is an error.
SCHEMA = json.loads(Path(__file__).with_name("sarif-schema-2.1.0.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def run_of(result: Result, folder: Path) -> dict[str, Any]:
    """The one run of the log, which has the schema of the format."""
    log = json.loads(sarif(result, folder))
    VALIDATOR.validate(log)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return dict(run)


def finding_of(result: Result, folder: Path) -> dict[str, Any]:
    (finding,) = run_of(result, folder)["results"]
    return dict(finding)


def line_of(text: str, file: Path) -> int:
    lines = [number for number, line in enumerate(file.read_text().split("\n"), start=1) if text in line]
    assert len(lines) == 1
    return lines[0]


def place_of(location: dict[str, Any]) -> tuple[str, int | None]:
    place = location["physicalLocation"]
    return place["artifactLocation"]["uri"], place.get("region", {}).get("startLine")


def test_a_finding_lies_in_its_trace_at_the_step_that_broke(refuted: Result, tmp_path: Path) -> None:
    finding = finding_of(refuted, tmp_path)
    step = json.dumps('fork("p", "c")')
    place = ("crashes/one.json", line_of(step, tmp_path / "crashes" / "one.json"))
    assert [place_of(location) for location in finding["locations"]] == [place]
    assert (finding["ruleId"], finding["level"], finding["kind"]) == ("refcount-exact", "error", "fail")
    assert finding["message"]["text"].startswith("refcount-exact is refuted for vllm-v0==0.2.7 at step 2 (walker).\n")
    assert "suppressions" not in finding


def test_the_steps_are_the_thread_flow_each_at_its_line(refuted: Result, tmp_path: Path) -> None:
    ((flow,),) = [code["threadFlows"] for code in finding_of(refuted, tmp_path)["codeFlows"]]
    file = tmp_path / "crashes" / "one.json"
    assert [
        (at["executionOrder"], at["location"]["message"]["text"], place_of(at["location"])) for at in flow["locations"]
    ] == [
        (number, step, ("crashes/one.json", line_of(json.dumps(step), file)))
        for number, step in ((1, 'new("p", 10 tokens)'), (2, 'fork("p", "c")'))
    ]


def test_operations_without_a_description_are_shown_as_calls_without_lines(refuted: Result, tmp_path: Path) -> None:
    trace = Trace("s", "refcount-exact", "x", {}, [["free", 1], ["reset"]])
    write(tmp_path / "crashes" / "one.json", trace)
    finding = finding_of(refuted, tmp_path)
    (at, then) = finding["codeFlows"][0]["threadFlows"][0]["locations"]
    assert [at["location"]["message"]["text"], then["location"]["message"]["text"]] == ["free(1)", "reset()"]
    assert [place_of(one["location"]) for one in (at, then)] == [("crashes/one.json", None)] * 2
    assert place_of(finding["locations"][0]) == ("crashes/one.json", 1)


METHOD = CodePlace("M.fork", "manager.py", 7)
RAISED = [
    CodePlace("M.free", "src/manager.py", 8),
    CodePlace("M.take", "src/manager.py", 9),
    CodePlace("heappop", "/usr/lib/heapq.py", 3),
]


@pytest.mark.parametrize(
    ("text", "frames", "place"),
    [
        ("free(1): wrong", [], ("src/manager.py", 7)),
        ("free(1) raised IndexError", RAISED, ("src/manager.py", 9)),
        ("can_append(group 1) said OK, but reserve(1, 1) raised IndexError", RAISED, ("src/manager.py", 7)),
    ],
    ids=["method", "exception", "wrong answer"],
)
def test_a_finding_lies_in_the_code_of_the_repository(
    refuted: Result,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    frames: list[CodePlace],
    place: tuple[str, int],
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "manager.py").touch()
    monkeypatch.chdir(tmp_path / "src")
    moved = [replace(frame, file=frame.file.removeprefix("src/")) for frame in frames]
    trace = read(tmp_path / "crashes" / "one.json", Trace)
    write(tmp_path / "crashes" / "one.json", replace(trace, text=text, method=METHOD, frames=moved))
    finding = finding_of(refuted, tmp_path)
    assert [place_of(one) for one in finding["locations"]] == [place]
    assert [place_of(one)[0] for one in finding["relatedLocations"]] == ["crashes/one.json"]
    bases = [one["physicalLocation"]["artifactLocation"]["uriBaseId"] for one in finding["locations"]]
    assert bases == ["%SRCROOT%"]


def test_code_that_is_not_in_the_repository_is_no_place(
    refuted: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "manager.py").touch()
    monkeypatch.chdir(tmp_path / "inside")
    trace = read(tmp_path / "crashes" / "one.json", Trace)
    outside = [CodePlace("M.fork", "../manager.py", 1), CodePlace("M.fork", "gone.py", 1), CodePlace("M.x", "a\0b", 1)]
    write(tmp_path / "crashes" / "one.json", replace(trace, frames=outside))
    (location,) = finding_of(refuted, tmp_path)["locations"]
    assert place_of(location)[0] == "crashes/one.json"


def test_a_finding_without_a_trace_lies_in_the_result(refuted: Result, tmp_path: Path) -> None:
    refuted.checks[2].trace = None
    finding = finding_of(refuted, tmp_path)
    assert place_of(finding["locations"][0]) == ("result.json", 1)
    assert "codeFlows" not in finding


def test_a_trace_with_a_strange_name_has_a_right_address(refuted: Result, tmp_path: Path) -> None:
    (tmp_path / "crashes" / "one.json").rename(tmp_path / "crashes" / "a b#%.json")
    refuted.checks[2].trace = "crashes/a b#%.json"
    assert place_of(finding_of(refuted, tmp_path)["locations"][0])[0] == "crashes/a%20b%23%25.json"


@pytest.mark.parametrize(
    ("property", "excused", "level", "is_suppressed"),
    [
        ("refcount-exact", "", "error", False),
        ("refcount-exact", "known until 2027-01-31: fixed upstream", "error", True),
        ("refcount-exact", "outside the contract of the engine: no-fork-in-step", "warning", False),
        ("refcount-exact", "not what is hunted for", "warning", False),
        ("hit-complete", "", "note", False),
    ],
)
def test_how_much_a_finding_matters_is_its_level(
    refuted: Result, tmp_path: Path, property: str, excused: str, level: str, is_suppressed: bool
) -> None:
    refuted.checks[2] = replace(refuted.checks[2], property=property, excused=excused)
    finding = finding_of(refuted, tmp_path)
    assert finding["level"] == level
    suppressions = [{"kind": "external", "justification": excused}] if is_suppressed else []
    assert finding.get("suppressions", []) == suppressions
    assert finding["properties"].get("excused", "") == excused


def test_what_broke_in_the_same_way_has_one_fingerprint(refuted: Result, tmp_path: Path) -> None:
    def fingerprints(**changes: Any) -> Any:
        refuted.checks[2] = replace(refuted.checks[2], **changes)
        return finding_of(refuted, tmp_path)["partialFingerprints"]

    first = fingerprints(signature="fork: refcount of block", text="block 1: says 1", judge="walker")
    assert fingerprints(text="block 3: says 7", judge="explorer") == first
    assert fingerprints(signature="free: refcount of block") != first
    unsigned = fingerprints(signature="", text="block 3: says 7")
    assert fingerprints(text="block 12: says 8") == unsigned
    assert fingerprints(property="no-double-free") != unsigned


def test_rules_are_the_properties_that_were_looked_at(refuted: Result, tmp_path: Path) -> None:
    run = run_of(refuted, tmp_path)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["refcount-exact", "read-back", "swap-mapping"]
    claim = "A block's refcount is the number of block-table entries that name it."
    assert rules[0]["shortDescription"]["text"] == claim
    assert rules[run["results"][0]["ruleIndex"]]["id"] == run["results"][0]["ruleId"]


def test_what_was_not_decided_is_a_notification(refuted: Result, tmp_path: Path) -> None:
    (invocation,) = run_of(refuted, tmp_path)["invocations"]
    notifications = [(one["level"], one["message"]["text"]) for one in invocation["toolExecutionNotifications"]]
    assert notifications == [
        ("warning", "read-back is unknown (explorer small): no time"),
        ("note", "swap-mapping is unsupported (walker): the subject cannot swap"),
        ("warning", "never reached: three-holders (walker)"),
    ]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 1)


def test_a_run_that_left_nothing_open_was_successful(passed: Result, tmp_path: Path) -> None:
    run = run_of(passed, tmp_path)
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"], run["results"]) == (True, 0, [])
    assert run["properties"]["seed"] == "7"
    assert run["properties"]["verdicts"] == {
        "proved": 0,
        "exhausted": 3,
        "not refuted": 1,
        "unknown": 0,
        "refuted": 0,
        "unsupported": 1,
    }


def test_a_run_that_did_not_finish_has_no_exit_code_and_was_not_successful(passed: Result, tmp_path: Path) -> None:
    passed.run.is_complete = False
    passed.messages.append("interrupted: the checks that were not decided are unknown")
    (invocation,) = run_of(passed, tmp_path)["invocations"]
    assert not invocation["executionSuccessful"]
    assert "exitCode" not in invocation
    notifications = [(one["level"], one["message"]["text"]) for one in invocation["toolExecutionNotifications"]]
    assert notifications[-2:] == [("error", "The run did not finish."), ("warning", passed.messages[0])]


def test_a_run_that_refuted_and_did_not_finish_was_not_successful(refuted: Result, tmp_path: Path) -> None:
    refuted.checks, refuted.witnesses, refuted.run.is_complete = [refuted.checks[2]], [], False
    (invocation,) = run_of(refuted, tmp_path)["invocations"]
    assert not invocation["executionSuccessful"]


@pytest.mark.parametrize("checks", [[], [Check("walker/x", "walker", "swap-mapping", Verdict.UNSUPPORTED)]])
def test_a_run_that_checked_nothing_was_not_successful(tmp_path: Path, checks: list[Check]) -> None:
    result = Result(Run("0.1.0", "verify", "kvproof", 7, is_complete=True), checks)
    (invocation,) = run_of(result, tmp_path)["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 5)


def test_the_log_is_readable_whatever_an_engine_says(refuted: Result, tmp_path: Path) -> None:
    refuted.checks[2].text = "raised '\x00 \ud800 é'"
    assert "raised '\\x00 \\ud800 é'" in finding_of(refuted, tmp_path)["message"]["text"]


@pytest.mark.parametrize(
    ("given", "urls", "expected"),
    [
        ("https://code.example/a/kvproof", ["Source, https://other.example"], "https://code.example/a/kvproof"),
        (
            "",
            ["Issues, https://i.example", "Homepage, https://h.example/", "Source, https://s.example"],
            "https://s.example",
        ),
        ("no address", ["Documentation, https://d.example"], "https://d.example"),
        ("", ["Source, file:///a", "Issues, https://i.example"], None),
        ("", None, None),
    ],
)
def test_the_address_is_that_of_the_action_or_of_the_package_or_absent(
    monkeypatch: pytest.MonkeyPatch, passed: Result, tmp_path: Path, given: str, urls: list[str] | None, expected: str
) -> None:
    package = Message()
    for url in urls or []:
        package["Project-URL"] = url
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: package)
    monkeypatch.setenv("KVPROOF_URL", given)
    address._of_the_package.cache_clear()
    driver = run_of(passed, tmp_path)["tool"]["driver"]
    address._of_the_package.cache_clear()
    assert driver.get("informationUri") == expected
