"""Every hostile subject, program and executor of the catalogue: the command ends as the catalogue says, and clean.

The default suite runs a sample. `pytest -m long tests/attacks` runs all.
"""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.attacks import executors, executors_on_devices, processes_of_subjects, programs, subjects
from tests.attacks.case import Attack, run

CATALOGUES = {
    "subject": subjects,
    "process": processes_of_subjects,
    "program": programs,
    "executor": executors,
    "executor on a device": executors_on_devices,
}
SAMPLE = {
    "fork: raises OutOfTime",
    "fork: its capabilities raise",
    "observe: reserved: huge",
    "reserve: copies: a generator",
    "made: capabilities: texts",
    "share: two lines",
}
EVERY = [
    pytest.param(module, attack, id=f"{kind}: {attack.name}", marks=() if attack.name in SAMPLE else pytest.mark.long)
    for kind, module in CATALOGUES.items()
    for attack in module.ATTACKS
]


@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a run are found in /proc")
@pytest.mark.parametrize(("catalogue", "attack"), EVERY)
def test_an_attack_ends_as_it_must(catalogue: ModuleType, attack: Attack, tmp_path: Path) -> None:
    done = run(tmp_path, catalogue.FILE, attack, catalogue.ARGUMENTS)
    assert done.faults == [], done.output
    assert (done.code in attack.codes, attack.words in done.output) == (True, True), (done.code, done.output)


def test_the_catalogue_has_every_attack_once() -> None:
    names = {kind: [attack.name for attack in module.ATTACKS] for kind, module in CATALOGUES.items()}
    assert {kind: len(set(of_kind)) for kind, of_kind in names.items()} == {
        kind: len(of_kind) for kind, of_kind in names.items()
    }
    assert len(names["subject"]) >= 120
    assert len(names["process"]) >= 40
    assert len(names["program"]) >= 40
    assert len(names["executor"]) >= 15
    assert {name for of_kind in names.values() for name in of_kind} >= SAMPLE
