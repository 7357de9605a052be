"""One row for each property: at which level it can be decided, and the reason if it cannot."""

import ast
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.oracle import coverage
from kvproof.check.oracle.coverage import OF_CONNECTORS, OF_STORES, PROPERTIES, RECORDING, Facts, has_meaning
from kvproof.check.oracle.level import ENCODER, LEVELS, MANAGER, PAIR, POOL, STORE, Level
from kvproof.check.protocol.capabilities import Capabilities
from kvproof.check.protocol.manager import Config, Observation, Unsupported
from kvproof.check.protocol.scopes import SCOPES, Scope
from kvproof.check.subjects.builtin.manager import BuiltIn
from kvproof.spec.text.eviction_policy import BLOCK_LRU
from kvproof.spec.text.properties import MEANINGS


def test_every_property_has_a_row_with_every_level() -> None:
    assert [*PROPERTIES] == [*MEANINGS]
    assert {name for name, needs in PROPERTIES.items() if needs.keys() != {"manager", "scheduler", RECORDING}} == set()


def test_a_level_without_an_entry_in_the_rows_has_needs_of_its_own() -> None:
    assert [level for level in LEVELS if level.needs] == [POOL, STORE, ENCODER, PAIR]
    for level in (POOL, STORE):
        assert level.needs.keys() < MEANINGS.keys()
        answers = {name: level.unsupported(name, Facts(Capabilities())) for name in MEANINGS}
        of_others = {name for name, reason in answers.items() if reason == level.other_needs}
        assert of_others == MEANINGS.keys() - level.needs


def everything() -> Facts:
    """A subject that can and declares everything that a property may need."""
    names: list[str] = [field for field, value in asdict(Capabilities()).items() if isinstance(value, bool)]
    everything_on: dict[str, Any] = dict.fromkeys(names, True) | {"hits_whole_prompts": False}
    can = replace(
        Capabilities(), num_overtaken_max=0, lost_hits=0, refusal_slack=0, eviction=BLOCK_LRU, **everything_on
    )
    return Facts(replace(can, connectors=("own",), lease_seconds=1))


def raised_in(folder: str) -> set[str]:
    """The properties that the judges in a folder of the oracle name in a call."""
    calls = (
        node
        for path in Path(coverage.__file__).parent.glob(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
    return {
        word.value
        for call in calls
        for word in call.args[:1]
        if isinstance(word, ast.Constant) and isinstance(word.value, str) and word.value in MEANINGS
    }


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_what_a_judge_can_raise_is_not_called_unsupported_at_its_level(level: Level) -> None:
    folder = {"pool": "pool.py"}.get(level.name, f"{level.name}/*.py")
    raised = raised_in(folder)
    assert raised
    assert {name for name in raised if level.unsupported(name, everything()) is not None} == set()


def test_every_property_can_be_decided_at_some_level() -> None:
    open_names = {
        name for name, needs in PROPERTIES.items() if any(need.is_fulfilled(everything()) for need in needs.values())
    }
    # the walker decides whether a subject is deterministic, by repeating runs; pools and stores have needs of their own
    assert open_names == MEANINGS.keys() - {"nondeterministic", *OF_STORES} | {*OF_CONNECTORS}


@pytest.mark.parametrize(
    ("property", "can", "reason"),
    [
        ("swap-mapping", Capabilities(), "the subject cannot swap"),
        ("swap-mapping", Capabilities(swap=True), None),
        ("sharing-equal", Capabilities(fork=True), None),
        ("sharing-equal", Capabilities(), "the subject shares nothing: no fork, no prefix cache"),
        ("progress", Capabilities(), "judged only at the scheduler level"),
        ("running-served", Capabilities(serves_running=True, refusal_slack=0), "judged only at the scheduler level"),
        ("preempted-as-set", Capabilities(preempts_as_set=True), "judged only at the scheduler level"),
        ("tokens-delivered", Capabilities(reports_tokens=True), "judged only at the scheduler level"),
        ("token-left", Capabilities(caching=True), None),
        (
            "token-left",
            Capabilities(caching=True, hits_whole_prompts=True),
            "the subject has no prefix cache, or declares that a hit can have a whole prompt",
        ),
    ],
)
def test_a_need_that_is_not_met_is_the_reason(property: str, can: Capabilities, reason: str | None) -> None:
    assert MANAGER.unsupported(property, Facts(can)) == reason


class Hides(BuiltIn):
    """It shows no refcounts."""

    def observe(self) -> Observation:
        return super().observe()._replace(refs=None)


class TakesNothing(BuiltIn):
    """It takes no configuration."""

    def open(self, config: Config) -> None:
        raise Unsupported("nothing")


def test_what_a_subject_does_not_show_is_unsupported() -> None:
    assert MANAGER.unsupported("refcount-exact", MANAGER.facts_of(Hides())) == "the subject shows no refcounts"
    assert MANAGER.unsupported("refcount-exact", MANAGER.facts_of(BuiltIn())) is None
    assert MANAGER.unsupported("refcount-exact", MANAGER.facts_of(TakesNothing())) is None


def test_a_scope_is_evidence_for_properties_that_can_break_in_it() -> None:
    scope = Scope(num_gpu_blocks=3, window=2, fork=False)
    assert has_meaning("window-kept", scope)
    assert not has_meaning("cow-copied", scope)
    assert not has_meaning("swap-mapping", scope)
    assert [name for name, one in SCOPES.items() if has_meaning("in-flight-held", one)] == [
        "flights",
        "transfers",
        "transfers-of-tails",
        "rules-flights",
        "rules-transfers",
        "rules-cache-and-transfers",
    ]
