"""A record of the corpus is read strictly, and answers which releases it affects."""

import json
from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import Corpus

from kvproof.check.hunting.corpus.record import CLASSES, FaultRecord, read, read_all, schema_text, selected
from kvproof.check.runs.configuration import ConfigurationError
from kvproof.check.runs.errors import UsageError


def only(folder: Path) -> FaultRecord:
    (fault,) = read_all(folder / "corpus")
    return fault


def test_the_id_of_a_record_is_the_name_of_its_file(corpus: Corpus) -> None:
    fault = only(corpus())
    assert (fault.id, fault.alias, fault.fault_class, fault.bad) == (
        "vllm-freed-twice",
        "F8",
        "reference-counts",
        ["0.22.0", "0.23.0"],
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("alias =", "alais ="), r"vllm-freed-twice.toml:2: there is no key 'alais' \(did you mean alias\?\)"),
        (('state = "repaired"', 'state = "fixed"'), r"toml:10: state: Invalid enum value 'fixed'"),
        (('bad = ["0.22.0", "0.23.0"]', "bad = []"), r"toml:7: bad: Expected `array` of length >= 1"),
        (('script = "vllm_salt', 'script = "../vllm_salt'), r"toml:15: script: Expected `str` matching regex"),
        (('trace = "f8-a', 'trace = "../f8-a'), r"toml:14: trace: Expected `str` matching regex"),
        (("story =", "#"), r"vllm-freed-twice.toml: .*missing required field `story`"),
        (('engine = "vllm"', "engine = vllm"), r"is not TOML"),
    ],
)
def test_a_record_that_is_wrong_is_refused_with_its_line(corpus: Corpus, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        only(corpus(change))


def test_the_id_cannot_be_given_in_the_file(corpus: Corpus) -> None:
    with pytest.raises(ConfigurationError, match="there is no key 'id'"):
        only(corpus(("engine =", 'id = "other"\nengine =')))


@pytest.mark.parametrize(
    ("release", "answer"),
    [
        ("0.21.0", None),
        ("0.22.0", "shown"),
        ("0.22.1", "shown before and after it"),
        ("0.23.0", "shown"),
        ("0.23.1", "newer than those that were run"),
        ("0.24.0", None),
        ("0.33.0", None),
    ],
)
def test_a_release_is_affected_if_a_run_showed_it_there_or_on_both_sides(
    corpus: Corpus, release: str, answer: str | None
) -> None:
    assert only(corpus()).affects(release) == answer


def test_between_two_bad_releases_with_a_good_one_between_them_nothing_is_known(corpus: Corpus) -> None:
    fault = only(corpus(('good = ["0.24.0"]', 'good = ["0.22.3", "0.24.0"]')))
    assert fault.affects("0.22.2") == "not run"


def test_a_fault_without_a_good_release_affects_every_newer_release(corpus: Corpus) -> None:
    fault = only(corpus(('good = ["0.24.0"]', "good = []")))
    assert fault.affects("0.40.0") == "newer than those that were run"


@pytest.mark.parametrize(
    ("good", "gone_in", "without"),
    [
        ('["0.24.0", "0.25.0"]', "0.24.0", "0.24.0"),
        ('["0.20.0", "0.24.0"]', "0.24.0", "0.24.0"),
        ('["0.20.0", "0.21.0"]', "", "0.21.0"),
        ("[]", "", ""),
    ],
)
def test_it_is_gone_in_the_oldest_good_release_after_the_bad_ones(
    corpus: Corpus, good: str, gone_in: str, without: str
) -> None:
    fault = only(corpus(('["0.24.0"]', good)))
    assert (fault.gone_in, fault.without) == (gone_in, without)


def test_an_engine_without_releases_affects_no_release(corpus: Corpus) -> None:
    assert only(corpus(('engine = "vllm"', 'engine = "owner/name"'))).affects("0.22.0") is None


def test_the_schema_has_every_key_and_every_class_and_not_the_id() -> None:
    schema = json.loads(schema_text())["$defs"]["FaultRecord"]
    assert {"engine", "bad", "missed", "report"} <= schema["properties"].keys()
    assert "id" not in schema["properties"]
    assert schema["properties"]["class"]["enum"] == [*CLASSES]
    assert schema["additionalProperties"] is False


def test_records_are_selected_by_id_alias_engine_and_class(corpus: Corpus) -> None:
    faults = read_all(corpus() / "corpus")
    assert selected(faults, ["F8"], None, None) == selected(faults, ["vllm-freed-twice"], "vllm", None) == faults
    assert selected(faults, [], None, "events") == []
    for ids, engine, fault_class, message in (
        (["F9"], None, None, "no record is named F9"),
        ([], "vlm", None, r"no record is of the engine vlm \(did you mean vllm\?\)"),
        ([], None, "event", r"no record is of the class event \(did you mean events\?\)"),
    ):
        with pytest.raises(UsageError, match=message):
            selected(faults, ids, engine, fault_class)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no records"):
        read_all(tmp_path)


def test_a_record_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(Exception, match=r"not a regular file|directory"):
        read(tmp_path / "a.toml")
