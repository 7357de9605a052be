"""SGLang's scheduler: its stand-ins, and the adapter on releases that are brought in (these tests download)."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.check.protocol.fault_attribution import StandInError
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.loading.strict import require_known
from kvproof.check.subjects.sglang import scheduler_stubs
from kvproof.check.subjects.sglang.scheduler import row_of
from kvproof.check.subjects.sglang.scheduler_fakes import Outputs, Times
from kvproof.check.subjects.sglang.scheduler_parts import Missing, kind_of
from kvproof.check.subjects.sglang.scheduler_settings import Clock, Settings, defaults_of
from kvproof.check.subjects.sglang.scheduler_stubs import Stubs, seal

WALK = """
import sys
from kvproof.check.subjects.sglang.scheduler import SGLangScheduler
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS

fixed = {"keys": 2}  # without callers' keys, of which one may be the id of an adapter (F21)
done = walk(SCHEDULERS, SGLangScheduler(sys.argv[1]), 1, max_operations=4_000, seconds=300, fixed=fixed)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""
LEAK = """
import sys
from kvproof.check.protocol.fault_attribution import EngineFailure
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.sglang.scheduler import SGLangScheduler
from kvproof.spec.text.identity import Key

subject = SGLangScheduler(sys.argv[1])
subject.open(SchedulerConfig(1, 8, max_num_batched_tokens=8, max_num_seqs=2, max_model_len=4, caching=True))
subject.add_request(1, [1], [7, 8], Key(), (), 1, None)
if sys.argv[2] == "leaks":
    subject.scheduler.token_to_kv_pool_allocator.alloc(1)
for sampled, finished in (({1: 9}, [1]), ({}, []), ({}, [])):
    try:
        subject.schedule()
    except (EngineFailure, ValueError) as error:
        print(error)
        break
    subject.launch()
    subject.complete(sampled, [], finished)
"""


def ran(code: str, *arguments: str) -> str:
    """What a script prints; in a process of its own, since modules of a release stay imported."""
    download.add(f"sglang=={arguments[0]}")
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stub module of an engine that is being imported."""
    monkeypatch.setattr(scheduler_stubs, "_seals", [])
    return Stubs("engine.part", None)


def test_a_stub_decorates_and_is_a_base_class_while_the_engine_is_imported(module: Any) -> None:
    def method() -> int:
        return 1

    class Derived(module.Mixin, module.Other[int]):  # type: ignore[misc]
        pass

    assert module.decorator(method) is method
    assert module.with_options("a text")(method) is method
    assert isinstance(Derived(), Derived)
    assert module.Mixin is module.Mixin
    assert module.Mode.NULL == "NULL"


def test_a_stub_that_is_used_once_all_is_imported_is_an_error_with_its_name(module: Any) -> None:
    class Derived(module.Mixin):  # type: ignore[misc]
        pass

    seal()

    with pytest.raises(StandInError, match=r"calls engine.part.function"):
        module.function(1)
    with pytest.raises(StandInError, match=r"reads engine.part.Thing.method"):
        module.Thing.method()
    with pytest.raises(AttributeError):
        Derived().method()


def test_an_attribute_that_the_constructor_would_set_is_missing_as_a_fault_of_kvproof() -> None:
    class Scheduler:
        """It reads what its constructor sets."""

    scheduler = object.__new__(kind_of(Scheduler))

    with pytest.raises(Missing, match="reads its attribute waiting_queue"):
        _ = scheduler.waiting_queue
    assert getattr(scheduler, "option", None) is None


def test_an_abort_is_sent_once_and_not_with_an_output_that_is_left_out() -> None:
    reason = SimpleNamespace(to_json=lambda: {"type": "abort"})
    request = SimpleNamespace(rid="00000001", finished=lambda: True, finished_output=None, finished_reason=reason)
    outputs = Outputs()

    outputs.stream_output([request], False, request)
    assert not outputs.ended
    outputs.stream_output([request], False)
    outputs.stream_output([request], False)
    assert outputs.ended == ["00000001"]


def test_who_waits_longer_has_an_earlier_time() -> None:
    first, second = Times(), Times()
    first.set_wait_queue_entry_time()
    second.set_wait_queue_entry_time()

    assert 0 < first.wait_queue_entry_time < second.wait_queue_entry_time
    with pytest.raises(AttributeError):
        _ = first.unknown


def test_a_row_is_found_where_each_release_keeps_it() -> None:
    assert row_of(SimpleNamespace(kv=None)) == (0, 0)
    assert row_of(SimpleNamespace(req_pool_idx=None, kv_allocated_len=0)) == (0, 0)
    assert row_of(SimpleNamespace(req_pool_idx=0, kv_allocated_len=3)) == (0, 3)
    assert row_of(SimpleNamespace(req_pool_idx=2, kv=SimpleNamespace(kv_allocated_len=3))) == (2, 3)
    assert row_of(SimpleNamespace(kv=SimpleNamespace(req_pool_idx=2, kv_allocated_len=3))) == (2, 3)


def test_the_clock_of_the_engines_is_later_each_time_it_is_looked_at() -> None:
    clock = Clock()
    first, second = clock.monotonic(), clock.time()

    assert first < second < first + 0.001


def test_an_option_is_the_one_given_or_the_default_and_another_is_a_fault_of_kvproof() -> None:
    settings = Settings({"page_size": 4}, {"page_size": None, "tp_size": 1})

    assert (settings.page_size, settings.tp_size) == (4, 1)
    with pytest.raises(AttributeError):
        _ = settings.unknown
    with pytest.raises(StandInError, match=r"Settings\.unknown"):
        require_known()


def test_the_defaults_of_a_release_are_those_that_are_constants(tmp_path: Path) -> None:
    (tmp_path / "srt").mkdir()
    (tmp_path / "srt" / "server_args.py").write_text("class Args:\n    size: int = 3\n    made: int = f()\n")

    assert defaults_of(tmp_path) == {"size": 3}


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
def test_a_release_is_driven_and_not_refuted(version: str) -> None:
    output = ran(WALK, version)

    assert output.startswith("not refuted")
    assert all(what in output for what in ("preempted", "aborted in flight", "exchange after a step", "token dropped"))


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.13", "0.5.15.post1", "0.5.18", "0.5.21"])
def test_a_release_that_loses_whom_it_preempts_is_driven(version: str) -> None:
    fixed = 'fixed = {"policy": "fcfs", "unpublished": False, "keys": 2}'
    code = WALK.replace('fixed = {"keys": 2}', fixed)

    assert ran(code, version).startswith("not refuted")


@pytest.mark.engine
@pytest.mark.parametrize("version", ["0.5.22", "0.5.23"])
def test_sglangs_own_check_of_its_pools_sees_a_leak(version: str) -> None:
    assert not ran(LEAK, version, "is right")
    assert "total=8" in ran(LEAK, version, "leaks")
