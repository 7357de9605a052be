"""One leak is one finding, though it shows when a sequence ends and when it is preempted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.hunting.findings import Saving
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.manager import Config, ManagerSubject
from kvproof.check.runs.store import Store
from kvproof.reports.identity import Identity
from kvproof.reports.result import Check
from kvproof.spec.trace import Operation
from kvproof.spec.verdict import Verdict

Factory = Callable[[], ManagerSubject]
Altered = Callable[..., Factory]

CONFIG = Config(block_size=1, num_gpu_blocks=2)
ADMITTED: list[Operation] = [("new", 1, (1,), (0,)), ("admit", 1, 1), ("run", 0)]
ENDED, PREEMPTED = [*ADMITTED, ("free", 1)], [*ADMITTED, ("preempt", 1)]


def leaks(manager: Any, seq: int) -> None:
    manager.tables.pop(seq)


def leaks_too(manager: Any, seq: int) -> None:
    manager.tables.pop(seq)


@pytest.fixture
def leaking(altered: Altered) -> Factory:
    """A manager that gives no block back, however a sequence ends."""
    return altered(release=lambda self, seq: leaks(self.manager, seq), refcounts=lambda self: None)


def saved(saving: Saving, *runs: list[Operation]) -> list[Check]:
    found = []
    for operations in runs:
        finding = finding_of(saving.make(), CONFIG, operations)
        assert finding is not None
        found.append(saving.save("walker", Counterexample(CONFIG, operations, finding), 0)[0])
    return found


def test_what_one_method_does_wrong_in_two_operations_has_one_signature(leaking: Factory, tmp_path: Path) -> None:
    first, second = saved(Saving(leaking, "leaking", 1, Store(tmp_path)), PREEMPTED, ENDED)
    assert first.signature == second.signature == "preempt: GPU: blocks in tables so are free, too small"
    assert first.trace != second.trace


def test_what_two_methods_do_wrong_has_two_signatures(altered: Altered, tmp_path: Path) -> None:
    def preempt(self: Any, group: int) -> None:
        for seq in self.groups[group]:
            self._admitted.remove(seq)
            leaks_too(self.manager, seq)

    make = altered(release=lambda self, seq: leaks(self.manager, seq), preempt=preempt, refcounts=lambda self: None)
    first, second = saved(Saving(make, "leaking", 1, Store(tmp_path)), PREEMPTED, ENDED)
    assert (first.signature.partition(":")[0], second.signature.partition(":")[0]) == ("preempt", "free")


def test_a_known_finding_keeps_its_signature(leaking: Factory, tmp_path: Path) -> None:
    saving = Saving(leaking, "leaking", 1, Store(tmp_path))
    accepted = "free: GPU: blocks in tables so are free, too small"
    saving.accepted = frozenset({Identity("no-leak-at-rest", accepted)})
    first, second = saved(saving, PREEMPTED, ENDED)
    assert (first.excused, second.signature) == ("", accepted)
    assert second.excused


def test_a_known_finding_is_excused_if_the_run_is_interrupted_while_it_is_saved(
    leaking: Factory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Saving, "_shortest", interrupted)
    saving = Saving(leaking, "leaking", 1, Store(tmp_path))
    saving.accepted = frozenset({Identity("no-leak-at-rest", "free: GPU: blocks in tables so are free, too small")})
    with pytest.raises(KeyboardInterrupt) as caught:
        saved(saving, ENDED)
    (check,) = caught.value.args
    assert (check.verdict, check.excused) == (Verdict.REFUTED, "in the baseline")
