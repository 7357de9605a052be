"""The Hypothesis machine: what it finds, that it shrinks, that it repeats, and what a bad subject makes of it."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis.internal.conjecture import engine

from kvproof.check.oracle.replay import finding_of
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.manager import Config, ManagerSubject, Unsupported
from kvproof.check.search import hypothesis_machine
from kvproof.check.search.hypothesis_machine import drive
from kvproof.check.search.result import SearchResult
from kvproof.check.subjects.registry import find

Factory = Callable[[], ManagerSubject]
Altered = Callable[..., Factory]


def forget_references(self: Any, parent: int, child: int) -> None:
    self.manager.tables[child] = self.manager.tables[parent].copy()
    self.manager.num_tokens[child] = self.manager.num_tokens[parent]


def done(found: SearchResult) -> tuple[Any, ...]:
    one = found.counterexample
    return one and (one.config, one.operations), found.num_operations, found.num_runs, found.coverage


def test_the_built_in_manager_is_not_refuted_and_its_rules_fire() -> None:
    found = drive(find("kvproof")(), 0, examples=40, steps=40)

    assert found.finding is None
    assert found.num_operations >= 40
    assert {"admitted", "append", "compute"} <= found.coverage.keys()


def test_a_drive_repeats_exactly_from_its_seed(example: Factory) -> None:
    assert done(drive(example(), 7, examples=10, steps=30)) == done(drive(example(), 7, examples=10, steps=30))


def test_a_seed_means_the_same_whatever_modules_are_loaded(example: Factory, tmp_path: Path) -> None:
    before = done(drive(example(), 7, examples=50, steps=3))
    (tmp_path / "numbers.py").write_text(f"NUMBERS = {list(range(101, 1023))}\ndef make(): return NUMBERS\n")
    find(f"{tmp_path / 'numbers.py'}:make")

    assert done(drive(example(), 7, examples=50, steps=3)) == before


def test_shrinking_is_ended_by_counts_and_not_by_the_clock(altered: Altered, monkeypatch: pytest.MonkeyPatch) -> None:
    make = altered(share=forget_references)
    before = done(drive(make(), 0, examples=50, steps=12))
    monkeypatch.setattr(engine, "MAX_SHRINKING_SECONDS", -1)
    assert done(drive(make(), 0, examples=50, steps=12)) == before
    monkeypatch.setattr(hypothesis_machine, "SHRINK_STEPS_MAX", 10)
    assert done(drive(make(), 0, examples=50, steps=12)) != before


def test_another_seed_drives_another_way(example: Factory) -> None:
    assert done(drive(example(), 7, examples=10, steps=30)) != done(drive(example(), 8, examples=10, steps=30))


def test_a_finding_comes_with_the_shrunk_run_that_shows_it_again_and_nothing_is_printed(
    altered: Altered, capsys: pytest.CaptureFixture[str]
) -> None:
    make = altered(share=forget_references)

    found = drive(make(), 0, examples=50, steps=30)

    assert capsys.readouterr() == ("", "")
    one = found.counterexample
    assert one is not None
    assert one.finding.property == "refcount-exact"
    assert [operation[0] for operation in one.operations] == ["new", "admit", "run", "fork"]
    again = finding_of(make(), one.config, one.operations)
    assert again is not None
    assert again.kind == one.finding.kind


def test_fields_of_the_configuration_can_be_fixed(example: Factory) -> None:
    seen: list[Config] = []
    subject = example()
    opened = subject.open
    subject.open = lambda config: (seen.append(config), opened(config))[1]  # type: ignore[func-returns-value, method-assign]

    drive(subject, 0, examples=5, steps=5, fixed={"block_size": 3, "num_gpu_blocks": 5})

    assert {(config.block_size, config.num_gpu_blocks) for config in seen} == {(3, 5)}


class Sometimes:
    """A manager that raises every other time."""

    def __init__(self) -> None:
        self.count = itertools.count()

    def can_append(self) -> bool:
        if next(self.count) % 2:
            raise RuntimeError("every other time")
        return True


def test_a_subject_that_answers_otherwise_the_next_time_is_nondeterministic(altered: Altered) -> None:
    manager = Sometimes()

    def sometimes(self: Any, group: int) -> bool:
        return manager.can_append()

    found = drive(altered(can_append=sometimes)(), 0, examples=100, steps=15)

    assert found.counterexample is not None
    assert found.counterexample.finding.property == "nondeterministic"
    assert found.counterexample.operations


def test_a_subject_that_hangs_is_found_and_not_waited_for(altered: Altered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypothesis_machine, "STEP_SECONDS_MAX", 0.2)

    found = drive(altered(release=lambda self, seq: time.sleep(60))(), 0, examples=50, steps=30)

    assert found.finding is not None
    assert found.finding.property == "total-calls"
    assert found.seconds < 5


def test_an_adapter_that_breaks_the_protocol_is_reported_and_nothing_is_shrunk(altered: Altered) -> None:
    with pytest.raises(AdapterError, match="can_append must return bool"):
        drive(altered(can_append=lambda self, group: "yes")(), 0, examples=50, steps=30)


def test_a_subject_that_refuses_every_configuration_is_unsupported(altered: Altered) -> None:
    def refuse(self: Any, config: Config) -> None:
        raise Unsupported("none of these")

    found = drive(altered(open=refuse)(), 0, examples=5, steps=5)

    assert (found.is_unsupported, found.num_operations, found.finding) == (True, 0, None)


def test_what_the_subject_refuses_is_counted_after_the_first_run_too(altered: Altered) -> None:
    def refuse(self: Any, config: Config) -> None:
        if config.block_size > 2:
            raise Unsupported("large blocks")
        type(self).open(self, config)

    found = drive(altered(open=refuse)(), 0, examples=50, steps=20)

    num_runs = found.coverage["blocks of one slot"] + found.coverage["blocks of two slots"]
    assert found.refusals == {"large blocks": found.num_drawn - num_runs}
    assert num_runs > 20
    assert found.sizes_missed() == ["blocks of three or four slots"]


@pytest.mark.parametrize("seed", range(6))
def test_a_drive_that_ends_because_its_time_is_up_found_nothing(example: Factory, seed: int) -> None:
    found = drive(example(), seed, examples=1_000_000, steps=50, seconds=0.1 + seed / 30)

    assert found.finding is None
    assert found.seconds < 3


def test_a_drive_goes_past_a_finding_that_is_excused(altered: Altered) -> None:
    make = altered(share=forget_references)
    found = drive(make(), 0, examples=50, steps=12)
    assert found.counterexample is not None
    past = drive(make(), 0, examples=50, steps=12, past=[found.counterexample.kind])
    assert past.num_past > 0
    assert past.counterexample is None or past.counterexample.kind != found.counterexample.kind
    assert past.coverage["fork"] > 0
