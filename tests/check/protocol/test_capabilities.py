"""An adapter declares the record of its level; one that was written for the record of all levels goes on working."""

from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.oracle.level import level_of
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.capabilities import (
    RECORDS,
    Capabilities,
    PoolCan,
    SchedulerCan,
    StoreCan,
    whole,
)
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.protocol.store import StoreAdapter, StoreConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import strategy_of
from kvproof.check.subjects.builtin.pool import OwnPool
from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler
from kvproof.check.subjects.builtin.store import OwnStore

EXAMPLES = Path(__file__).parents[3] / "examples"
READ_BY_A_STORE = 19  # fields, at most: of its capabilities and of its configuration, but for the names of all levels
Make = Callable[[], Any]


def example(name: str, *changes: tuple[str, str]) -> Make:
    """The adapter of an example, with these changes of its text."""
    text = (EXAMPLES / name).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(text, namespace)
    return namespace["Adapter" if "Adapter" in namespace else "Store"]  # type: ignore[no-any-return]


def with_capabilities(kind: type, declared: object) -> Make:
    return type("Former", (kind,), {"capabilities": declared})


FORMER = "from kvproof.check.protocol.manager import Capabilities\nfrom kvproof.check import"
# Of each level: an adapter as it is written now, and as it was written before
ADAPTERS: dict[str, tuple[Make, Make]] = {
    "manager": (
        example("forty_lines.py"),
        example("forty_lines.py", ("ManagerCan(", "Capabilities("), ("from kvproof.check import", FORMER)),
    ),
    "scheduler": (
        with_capabilities(BuiltInScheduler, SchedulerCan(caching=True, reset=True, chunked=True)),
        with_capabilities(BuiltInScheduler, Capabilities(caching=True, reset=True, chunked=True)),
    ),
    "pool": (
        with_capabilities(OwnPool, PoolCan(fork=True, caching=True, reset=True)),
        with_capabilities(OwnPool, Capabilities(fork=True, caching=True, reset=True)),
    ),
    "store": (
        example("forty_line_store.py"),
        example(
            "forty_line_store.py",
            ("StoreCan(", "Capabilities("),
            ("config.num_slots", "config.num_gpu_blocks"),
            ("from kvproof.check import", FORMER),
        ),
    ),
}


@pytest.mark.parametrize("level", ADAPTERS)
def test_an_adapter_of_former_names_is_judged_as_one_of_todays(level: str) -> None:
    results = []
    for make in ADAPTERS[level]:
        subject = make()
        strategy = strategy_of(subject)
        assert level_of(subject).name == level
        assert type(capabilities_of(subject)) is Capabilities
        done = walk(strategy, subject, 1, max_operations=400, seconds=100)
        results.append((capabilities_of(subject), done.finding, done.kinds, done.num_operations))
    assert results[0] == results[1]
    assert results[0][1] is None
    assert results[0][3] >= 400


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_a_field_of_a_level_is_the_same_in_the_record_of_all_levels(record: Any) -> None:
    of_all: dict[str, Field[Any]] = {one.name: one for one in fields(Capabilities)}
    for one in fields(record):
        assert (one.type, one.default) == (of_all[one.name].type, of_all[one.name].default)
    assert whole(record()) == Capabilities()


def test_what_a_level_declares_is_declared_of_all_levels() -> None:
    assert whole(StoreCan(leases=True, lost_hits=2)) == Capabilities(leases=True, lost_hits=2)
    assert whole(PoolCan(ignores_double_free=True)) == Capabilities(ignores_double_free=True)
    assert whole(SchedulerCan(swap=True, async_steps=2)) == Capabilities(swap=True, async_steps=2)
    declared = Capabilities(swap=True)
    assert whole(declared) is declared


def test_the_author_of_a_store_reads_few_fields() -> None:
    own = [name for name in vars(StoreConfig)["__annotations__"] if name != "block_size"]
    assert {*own, "num_slots"} == {"num_slots", "replacement", "lease_seconds", "lazy_stores", "num_parts"}
    assert len(fields(StoreCan)) <= READ_BY_A_STORE
    assert StoreConfig(num_gpu_blocks=3).num_slots == 3
    assert isinstance(StoreAdapter.capabilities, StoreCan)


def test_what_is_no_record_of_capabilities_is_a_fault_of_the_adapter() -> None:
    with pytest.raises(AdapterError) as raised:
        capabilities_of(with_capabilities(OwnStore, {"leases": True})())
    assert str(raised.value) == (
        "Former.capabilities must be a PoolCan, StoreCan, EncoderCan, PairCan, ManagerCan, SchedulerCan "
        "or Capabilities; it is {'leases': True}"
    )
    with pytest.raises(AdapterError, match=r"Former\.capabilities\.leases is wrong: Expected `bool`, got `int`"):
        capabilities_of(with_capabilities(OwnStore, StoreCan(leases=2))())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="swap"):
        StoreCan(swap=True)  # type: ignore[call-arg]
