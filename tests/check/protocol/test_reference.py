"""The page of all calls, capabilities and observations is what the protocol says now."""

from dataclasses import fields
from pathlib import Path

from kvproof.check.isolation.pipe.subject import ObservedState
from kvproof.check.protocol.capabilities import ManagerCan, PoolCan, SchedulerCan, StoreCan
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.manager_adapter import ALWAYS, NEEDED
from kvproof.check.protocol.reference import OBSERVED, adapter_calls, documented_fields, page

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_current() -> None:
    assert (DOCS / "adapter-reference.md").read_text() == page(), "run `make docs-reference`"


def test_every_call_capability_and_field_is_described() -> None:
    calls = {call.name: call for call in adapter_calls()}
    assert calls.keys() == {*ALWAYS, *NEEDED, "refcounts", "free_ids"}
    assert all(call.sentences and "->" in call.signature for call in calls.values())
    for kind in (ManagerCan, PoolCan, StoreCan, Config):
        described = documented_fields(kind)
        assert list(described) == [field.name for field in fields(kind)]
        assert [name for name, (_, comment) in described.items() if not comment] == []
    of_schedulers = [field.name for field in fields(SchedulerCan)][len(fields(ManagerCan)) :]
    assert list(documented_fields(SchedulerCan)) == of_schedulers
    assert all(comment for _, comment in documented_fields(SchedulerCan).values())


def test_a_program_shows_what_an_adapter_shows() -> None:
    assert ObservedState.__struct_fields__ == OBSERVED
