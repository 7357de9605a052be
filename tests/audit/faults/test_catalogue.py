"""The catalogues of faults: every fault can be planted, and has a sentence and, if it is not found, a reason."""

import re
from collections import Counter
from pathlib import Path

import pytest

from kvproof.audit.faults.bytes_judge import EXECUTORS
from kvproof.audit.faults.catalogue import catalogue, fresh, second, shipped
from kvproof.audit.faults.edits import Fault, NotPlanted, release_of
from kvproof.audit.faults.planting import download_name, sources
from kvproof.check.subjects.registry import NAMED

BLIND_SPOTS = Path(__file__).parents[3] / "docs" / "blind-spots.md"
ALL = (*catalogue(), *fresh(), *second(), *shipped())
OWN = [fault for fault in ALL if not release_of(fault)]
OF_ENGINES = [fault for fault in ALL if release_of(fault)]


def test_every_fault_of_our_own_code_is_planted_once_and_changes_it() -> None:
    for fault in OWN:
        sources(fault)


@pytest.mark.engine
@pytest.mark.parametrize("fault", OF_ENGINES, ids=lambda fault: str(fault.id))
def test_every_fault_of_an_engine_is_planted_once_and_changes_it(fault: Fault) -> None:
    try:
        sources(fault)
    except NotPlanted as error:
        if "is not downloaded" not in str(error):
            raise
        pytest.skip(str(error))


def test_the_catalogue_has_the_faults_of_at_least_three_engines_and_of_every_subject_of_ours() -> None:
    subjects = {fault.subject.partition("==")[0] for fault in catalogue()}
    assert subjects >= {name for name in NAMED if name.startswith("kvproof")}
    assert subjects <= {*NAMED, *EXECUTORS}
    assert len({fault.subject for fault in catalogue() if release_of(fault)}) >= 3
    assert len(catalogue()) >= 150


def test_the_fresh_faults_are_in_every_subject_of_ours_and_in_five_engines_and_half_need_two_features() -> None:
    of_engines = [fault for fault in fresh() if release_of(fault)]
    newer = {"kvproof-offers", "kvproof-pair"}  # than the list
    assert {fault.subject for fault in fresh()} >= {name for name in NAMED if name.startswith("kvproof")} - newer
    assert {download_name(fault.subject) for fault in of_engines} == {
        "exllamav3",
        "lmdeploy",
        "sglang",
        "transformers",
        "vllm",
    }
    assert len(fresh()) >= 120
    assert len(of_engines) >= 50
    assert 2 * sum(" Needs " in fault.sentence for fault in fresh()) >= len(fresh())


def test_a_fresh_fault_is_one_edit_that_the_first_catalogue_does_not_have_in_a_release_that_is_the_newest() -> None:
    known = {edit for fault in catalogue() for edit in fault.plant}
    for fault in fresh():
        (edit,) = fault.plant
        assert edit not in known, fault.id
        assert release_of(fault) in ("", NAMED[fault.row].default_release if fault.row in NAMED else ""), fault.id


def test_the_shipped_faults_are_in_what_vllm_ships_and_half_need_two_features() -> None:
    known = {edit for fault in (*catalogue(), *fresh(), *second()) for edit in fault.plant}
    rows = {"vllm-v1", "vllm-v1-scheduler", "vllm-v1-images", "vllm-encoder-cache", "vllm-simple-offloading"}
    assert {fault.row for fault in shipped()} == rows
    assert len(shipped()) == 60
    assert 2 * sum(" Needs " in fault.sentence for fault in shipped()) >= len(shipped())
    assert [fault.id for fault in shipped() if known & set(fault.plant)] == []


def test_every_fault_has_a_name_of_its_own_and_a_sentence() -> None:
    assert [name for name, count in Counter(fault.id for fault in ALL).items() if count > 1] == []
    for fault in ALL:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.id.removeprefix(f"{fault.row}/")), fault.id
        assert re.fullmatch(r"[A-Z].*\.", fault.sentence), fault.id


def test_the_blind_spots_are_those_that_the_catalogue_names() -> None:
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", BLIND_SPOTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert {fault.blind_spot for fault in ALL if fault.blind_spot} == set(rows)
