"""Faults that one word of the specification catches, and nothing else: without the word the same run is not refuted.

Each fault is planted in a built-in subject. The word is then replaced by one that allows everything, which shows that
no other check of the judge repeats it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest

from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]

ADMISSION, STATE = "kvproof.impl.admission", "kvproof.impl.manager_state"
POOL = "kvproof.check.subjects.builtin.pool"


class Rule(NamedTuple):
    """A word, a fault that it catches in a short run, and the property that is refuted."""

    word: str
    allows: Any  # what the word answers when it allows everything
    subject: str
    config: Config
    operations: Sequence[Operation]
    fault: tuple[str, str, str, str]  # module, function, line, replacement
    property: str


PROMPT = (0,) * 8

RULES = [
    Rule(
        "may_end_for_good",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8)],
        (ADMISSION, "admission", "num_usable - num_required < watermark_blocks", "num_usable == num_required"),
        "admission-final",
    ),
    Rule(
        "may_wait",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8)],
        (ADMISSION, "admission", "AllocStatus.OK if num_free - num_required >= watermark_blocks else", ""),
        "admission-final",
    ),
    Rule(
        "may_reset",
        False,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2, caching=True),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8), ("run", 0), ("free", 1), ("reset",)],
        (
            "kvproof.impl.manager_state",
            "ManagerState.reset_prefix_cache",
            "not (self._gpu.is_idle",
            "(self._gpu.is_idle",
        ),
        "no-leak-at-rest",
    ),
    Rule(
        "may_reset",
        False,
        "kvproof-pool",
        PoolConfig(num_gpu_blocks=2, caching=True),
        [("store", 1, (0,)), ("give", 1), ("forget",)],
        (
            "kvproof.check.subjects.builtin.pool",
            "OwnPool.reset_cache",
            "not self.cached.is_idle",
            "self.cached.is_idle",
        ),
        "no-leak-at-rest",
    ),
]


def words_of(rule: Rule) -> dict[str, Any]:
    """The words as the judge of the rule reads them; every machine of these sizes shares them."""
    words: list[dict[str, Any]] = []
    replay(find(rule.subject), rule.config, (), watch=lambda judge: words.append(judge.explainer.machine.names))
    return words[0]


def finding_of(rule: Rule) -> str | None:
    finding = replay(find(rule.subject), rule.config, rule.operations).finding
    return None if finding is None else finding.property


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.word} of {rule.subject}")
def test_a_fault_is_caught_by_this_word_alone(rule: Rule, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding_of(rule) is None, "without the fault"
    with plant(*rule.fault):
        assert finding_of(rule) == rule.property
        monkeypatch.setitem(words_of(rule), rule.word, lambda *arguments: rule.allows)
        assert finding_of(rule) is None, "without the word"
