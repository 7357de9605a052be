"""Known findings are reported and are no failure until they expire; and calls outside the contract of an engine."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL
from typer.testing import CliRunner, Result

from kvproof.check.cli.app import app
from kvproof.check.hunting.walk_stage import BESIDE_KNOWN_FINDINGS, OPERATIONS_ENOUGH
from kvproof.check.protocol.finding import Finding
from kvproof.check.runs.configuration import ConfigurationError
from kvproof.check.runs.known_findings import KnownFindings, known_findings
from kvproof.reports.identity import Identity
from kvproof.spec.verdict import Exit

FAULTY = f"""{FORGETFUL}
from kvproof.check.protocol.manager import Assumption, OutsideContract

class Contract(BuiltIn):
    assumptions = (Assumption("no-fork", "Nothing is forked."),)

    def fork(self, parent, child):
        raise OutsideContract("no-fork", "a sequence of one request only is not forked")
"""
ENTRY = """
[[known]]
property = "refcount-exact"
signature = "fork: *"
subject = "faulty.py:*"
reason = "it is being fixed"
expires = {day}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with faulty subjects."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    return tmp_path


def explore(*options: str, subject: str = "Forgetful") -> Result:
    sizes = ("--blocks", "2", "--seqs", "2", "--tokens", "2")
    return CliRunner().invoke(app, ["explore", "--subject", f"faulty.py:{subject}", *sizes, *options])


def refuted() -> list[dict[str, Any]]:
    document = json.loads(Path(".kvproof", "result.json").read_text())
    return [check for check in document["checks"] if check["verdict"] == "refuted"]


def loaded(folder: Path, text: str, today: date = date(2026, 1, 1)) -> KnownFindings:
    path = folder / "known.toml"
    path.write_text(text)
    return known_findings(path, today)


def test_a_known_finding_is_reported_and_is_no_failure(folder: Path) -> None:
    (folder / "kvproof.toml").write_text(ENTRY.format(day="2999-01-31"))
    done = explore()
    assert done.exit_code == 0, done.output
    (found,) = refuted()
    assert found["excused"] == "known until 2999-01-31: it is being fixed"
    assert found["signature"] == "fork: refcount of block: the specification says the subject, too small"
    assert "  No failure: known until 2999-01-31: it is being fixed" in done.output.splitlines()
    assert (folder / ".kvproof" / found["trace"]).is_file()


def transitions() -> int:
    document = json.loads(Path(".kvproof", "result.json").read_text())
    return max(int(check["counts"].get("transitions", 0)) for check in document["checks"])


def test_a_search_of_a_scope_goes_past_a_known_finding_and_calls_nothing_exhausted(folder: Path) -> None:
    assert explore().exit_code == 1
    before = transitions()
    (folder / "kvproof.toml").write_text(ENTRY.format(day="2999-01-31"))
    done = explore()
    assert transitions() > 3 * before
    document = json.loads(Path(".kvproof", "result.json").read_text())
    decided = [one for one in document["checks"] if one["verdict"] not in ("unsupported", "refuted")]
    assert {one["verdict"] for one in decided} == {"not refuted"}
    texts = {one["text"] for one in decided if one["property"] != "refcount-exact"}
    assert [text.startswith("every state was searched but those that come after") for text in texts] == [True]
    assert "what comes after these was not searched" in done.output


SECOND_FAULT = """

class TwoFaults(Forgetful):
    def free(self, seq_id):
        super().free(seq_id)
        if seq_id == 2:
            raise KeyError("a second fault")
"""


def test_what_is_wrong_beside_a_known_finding_is_found_in_its_scope(folder: Path) -> None:
    (folder / "kvproof.toml").write_text(ENTRY.format(day="2999-01-31"))
    with (folder / "faulty.py").open("a") as file:
        file.write(SECOND_FAULT)
    assert explore(subject="TwoFaults").exit_code == 1
    assert {bool(one["excused"]): one["property"] for one in refuted()} == {
        True: "refcount-exact",
        False: "total-calls",
    }


def test_a_known_finding_that_a_search_cannot_go_past_leaves_the_scope_unknown(folder: Path) -> None:
    (folder / "kvproof.toml").write_text(
        ENTRY.format(day="2999-01-31").replace("refcount-exact", "total-calls").replace("fork: *", "*")
    )
    with (folder / "faulty.py").open("a") as file:
        file.write(
            """

class NeverOpens(BuiltIn):
    def open(self, config):
        raise KeyError("no")
"""
        )
    done = explore(subject="NeverOpens")
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    assert "a finding that is excused, and could not go past it" in done.output


UNCACHED = """
from kvproof.check.protocol.manager import Unsupported


class Uncached(Forgetful):
    def open(self, config):
        if config.caching:
            raise Unsupported("it has no cache, whatever it declares")
        super().open(config)
"""


@pytest.mark.parametrize(("effort", "is_enough"), [(OPERATIONS_ENOUGH, True), (OPERATIONS_ENOUGH - 1, False)])
def test_what_a_long_walk_never_reaches_beside_a_known_finding_leaves_nothing_open(
    folder: Path, few_scopes: None, effort: int, is_enough: bool
) -> None:
    (folder / "kvproof.toml").write_text(ENTRY.format(day="2999-01-31"))
    with (folder / "faulty.py").open("a") as file:
        file.write(UNCACHED)
    hunt = ["hunt", "--subject", "faulty.py:Uncached", "--seed", "1", "--effort", str(effort), "--no-isolation"]
    done = CliRunner().invoke(app, hunt)
    document = json.loads(Path(".kvproof", "result.json").read_text())
    assert [check["excused"] for check in refuted()] != []
    assert done.exit_code == (Exit.OK if is_enough else Exit.INCONCLUSIVE), done.output
    notes = [message for message in document["messages"] if BESIDE_KNOWN_FINDINGS in message]
    assert bool(notes) == is_enough


NO_FORKS = """
from kvproof.check.protocol.manager import Assumption, OutsideContract

class NoForks(Adapter):
    assumptions = (Assumption("no-forks", "Nothing is forked."),)

    def share(self, parent, child):
        raise OutsideContract("no-forks", "this was")
"""


def test_what_a_contract_costs_was_not_checked(folder: Path, few_scopes: None, example_source: str) -> None:
    (folder / "example.py").write_text(example_source + NO_FORKS)
    hunt = ["hunt", "--subject", "example.py:NoForks", "--seed", "1", "--effort", str(OPERATIONS_ENOUGH)]
    done = CliRunner().invoke(app, [*hunt, "--no-isolation"])
    assert done.exit_code == Exit.INCONCLUSIVE, done.output
    costs = "fork (walker), three holders (walker), copy-on-write (walker), fork (walker operations)"
    assert f"never reached: {costs}." in done.output.splitlines()[-1]


def test_after_its_day_a_known_finding_fails_and_says_so(folder: Path) -> None:
    (folder / "other.toml").write_text(ENTRY.format(day="2020-01-31"))
    done = explore("--known", "other.toml")
    assert done.exit_code == 1
    (found,) = refuted()
    assert not found["excused"]
    assert "it was known until 2020-01-31 (it is being fixed): fix it, or renew its entry" in found["text"]


def test_another_finding_than_the_known_one_fails(folder: Path) -> None:
    (folder / "kvproof.toml").write_text(ENTRY.format(day="2999-01-31").replace("fork: *", "free: *"))
    assert explore().exit_code == 1


def test_an_entry_speaks_of_its_property_signature_and_subject_only(folder: Path) -> None:
    known = loaded(folder, ENTRY.format(day="2026-01-31"))
    found, subject = Identity("refcount-exact", "fork: refcount"), "faulty.py:Forgetful"
    assert known.excuse(found, subject)
    others = Identity("conservation", found.signature), Identity(found.property, "free: refcount")
    for other in (*((one, subject) for one in others), (found, "kvproof")):
        assert not known.excuse(*other)
        assert not known.expired(*other)
    assert loaded(folder, ENTRY.format(day="2026-01-31"), date(2026, 1, 31)).excuse(found, subject)
    assert loaded(folder, ENTRY.format(day="2026-01-31"), date(2026, 2, 1)).expired(found, subject)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[know]]\n", "known.toml:1: there is no key 'know' (did you mean known?); the keys are subject, "),
        ("known = 3\n", "write [[known]] before each finding"),
        ("[[known]\n", "is not TOML"),
        (
            ENTRY.format(day='"2026-01-31"'),
            "expires must be a date, such as 2027-01-31 without quotes; it is '2026-01-31'",
        ),
        (ENTRY.format(day="2026-01-31").replace("reason", "reasn"), ".toml:2: known finding: there is no key 'reasn'"),
        ('[[known]]\nproperty = "refcount-exact"\n', ".toml:1: known finding: 'reason' is missing"),
        (ENTRY.format(day="2026-01-31").replace("refcount-", "refcont-"), "there is no property 'refcont-exact'"),
        (
            ENTRY.format(day="2026-01-31").replace("it is being fixed", " "),
            "reason must be a text that is not empty",
        ),
    ],
)
def test_what_the_file_does_not_mean_to_say_is_refused(folder: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(folder, text)
    assert said in str(refused.value)


def test_an_entry_with_a_former_signature_goes_on_to_excuse_its_finding(folder: Path) -> None:
    known = loaded(folder, ENTRY.format(day="2026-01-31").replace("fork: *", "fork KeyError: no such parent"))
    found = Identity(
        "refcount-exact", "fork KeyError: raised in share of pool.py (window)", "fork KeyError: no such parent"
    )
    assert known.excuse(found, "faulty.py:Forgetful")
    assert not known.excuse(Identity(found.property, found.signature), "faulty.py:Forgetful")


def test_findings_that_differ_in_numbers_only_are_one_mechanism() -> None:
    text = "GPU: {} blocks in tables, so 1 are free"
    one, other = (Finding("conservation", text.format(n), call=f"free({n})") for n in (3, 17))
    assert one.mechanism("free") == other.mechanism("free") == "free: GPU: blocks in tables so are free"


def test_a_call_outside_the_contract_is_labelled_and_fails_only_if_asked_to(folder: Path) -> None:
    done = explore(subject="Contract")
    assert done.exit_code == 0, done.output
    (found,) = refuted()
    assert found["excused"] == "outside the contract of the engine: no-fork"
    assert "a sequence of one request only is not forked" in found["text"]
    assert explore("--contract-fails", subject="Contract").exit_code == 1
