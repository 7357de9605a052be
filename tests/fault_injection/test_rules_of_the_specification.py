"""Faults that one function of the specification catches, and nothing else: without it the same run is not refuted.

Each fault is planted in a built-in subject. The function is then replaced by one that allows everything, which shows
that no other check of the judge repeats it. The subjects declare neither that their refusals are exact nor how many
hits they lose: with such a declaration the judge measures the same faults by a second rule (`may_answer_ok`, or the
longest hit), and `test_wrong_answers` is about those.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from kvproof.audit.faults.catalogue import IMPL
from kvproof.audit.faults.edits import Edit
from kvproof.audit.faults.planting import in_memory
from kvproof.check.oracle.replay import replay
from kvproof.check.protocol.adapter_check import capabilities_of
from kvproof.check.protocol.manager import Config
from kvproof.check.protocol.pool import PoolConfig
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

ADMISSION, STATE = f"{IMPL}admission.py", f"{IMPL}manager_state.py"
MANAGER, SCHEDULER, GROWTH = f"{IMPL}block_manager.py", f"{IMPL}scheduler.py", f"{IMPL}growth.py"
SUBJECTS, MAPPING = "check/kvproof/check/subjects/builtin", "kvproof.spec.text.mapping"


class Rule(NamedTuple):
    """A function, a fault that it catches in a short run, and the property that is refuted."""

    function: str
    allows: Any  # what the function answers when it allows everything
    subject: str
    config: Config
    operations: Sequence[Operation]
    fault: Edit
    property: str
    module: str = ""  # where the judge reads the function, if it does not read it from its machine


def edit(file: str, function: str, old: str, new: str) -> Edit:
    return Edit(function, old, new, file)


PROMPT = (0,) * 8
RUN_ONCE: list[Operation] = [("new", 1, (1,), PROMPT), ("admit", 1, 8), ("run", 0)]
# Too rare for a walk: a group's last append exchanges the source of its first copy for a twin, and in the same step the
# block so freed is the last free one, and the target of another group's copy.
DISTURBING_COPIES: list[Operation] = [
    ("new", 1, (1,), (0, 0)),
    ("admit", 1, 2),
    ("new", 2, (2,), (0,)),
    ("admit", 2, 1),
    ("new", 3, (3,), (1,)),
    ("admit", 3, 1),
    ("run", 0),
    ("fork", 2, 4),
    ("fork", 3, 5),
    ("sample", 2, (1, 0)),
    ("sample", 3, (0, 0)),
    ("append", 2),
    ("append", 3),
    ("run", 0),
]
STEP: list[Operation] = [("add", 1, (1,), PROMPT, 2), ("schedule",), ("launch",), ("complete", (0,))]

RULES = [
    Rule(
        "may_end_for_good",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8)],
        edit(ADMISSION, "admission", "num_usable - num_required < watermark_blocks", "num_usable == num_required"),
        "admission-final",
    ),
    Rule(
        "may_wait",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8)],
        edit(ADMISSION, "admission", "AllocStatus.OK if num_free - num_required >= watermark_blocks else", ""),
        "admission-final",
    ),
    Rule(
        "may_reset",
        False,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2, caching=True),
        [("new", 1, (1,), PROMPT), ("admit", 1, 8), ("run", 0), ("free", 1), ("reset",)],
        edit(
            STATE,
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
        edit(
            f"{SUBJECTS}/pool.py",
            "OwnPool.reset_cache",
            "not self.cached.is_idle",
            "self.cached.is_idle",
        ),
        "no-leak-at-rest",
    ),
    Rule(
        "is_block_of",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=2, num_host_blocks=3),
        [*RUN_ONCE, ("swap_out", 1)],
        edit(MANAGER, "SelfAttnBlockSpaceManager.swap_out", "mapping.items()]", "mapping.items()] + [(2, 2)]"),
        "swap-mapping",
        MAPPING,
    ),
    Rule(
        "are_one_to_one",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=3, num_host_blocks=3),
        [*RUN_ONCE, ("swap_out", 1)],
        edit(MANAGER, "SelfAttnBlockSpaceManager.swap_out", "return [(source,", "return [(2, 0)] + [(source,"),
        "swap-mapping",
        MAPPING,
    ),
    Rule(
        "is_within_budget",
        True,
        "kvproof-scheduler",
        SchedulerConfig(num_gpu_blocks=8, max_num_batched_tokens=12, max_num_seqs=8, max_model_len=12),
        [("add", 1, (1,), PROMPT, 2), ("add", 2, (2,), PROMPT, 2), ("schedule",)],
        edit(SCHEDULER, "SchedulingBudget.can_schedule", "0 < num_tokens <= self.num_tokens_left and", ""),
        "budget-kept",
        "kvproof.check.oracle.scheduler.stepping",
    ),
    Rule(
        "have_places",
        True,
        "kvproof-scheduler",
        SchedulerConfig(num_gpu_blocks=8, max_num_seqs=1),
        [*STEP, ("add", 2, (2,), PROMPT, 2), ("schedule",)],
        edit(SCHEDULER, "Scheduler._admit_prompts", "- self.running.num_running_seqs() if", "if"),
        "budget-kept",
        "kvproof.check.oracle.scheduler.step_checks",
    ),
    Rule(
        "exceeds_limits",
        True,
        "kvproof-scheduler",
        SchedulerConfig(num_gpu_blocks=8, max_model_len=8),
        [("add", 1, (1,), PROMPT, 2), ("schedule",)],
        edit(
            SCHEDULER,
            "Scheduler._is_over_a_limit",
            "num_tokens > config.max_model_len",
            "num_tokens >= config.max_model_len",
        ),
        "admission-final",
        "kvproof.check.oracle.scheduler.schedule",
    ),
    Rule(
        "may_hit",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=4, caching=True),
        [*RUN_ONCE, ("new", 2, (2,), (*PROMPT, 1)), ("admit", 2, 9)],
        edit(
            f"{SUBJECTS}/manager.py",
            "BuiltIn.admit",
            "* self.config.block_size",
            "* self.config.block_size - 1",
        ),
        "hit-computed",
    ),
    Rule(
        "have_slots",
        True,
        "kvproof",
        Config(block_size=4, num_gpu_blocks=4, lookahead=4),
        [*RUN_ONCE, ("sample", 1, (0,)), ("append", 1)],
        edit(MANAGER, "SelfAttnBlockSpaceManager.append_slots", "known + num_lookahead_slots", "known"),
        "admission-sound",
    ),
    Rule(
        "have_slots",
        True,
        "kvproof-scheduler",
        SchedulerConfig(block_size=4, num_gpu_blocks=8),
        [*STEP, ("schedule",)],
        edit(SCHEDULER, "Scheduler._run_on", "manager.append_slots(seq, scheduled.num_lookahead_slots)", "[]"),
        "read-back",
    ),
    Rule(
        "may_recompute",
        True,
        "kvproof-scheduler",
        SchedulerConfig(block_size=4, num_gpu_blocks=2),
        [("add", 1, (1, 2), (0,) * 4, 4), *STEP[1:], ("schedule",)],
        edit(
            SCHEDULER,
            "Scheduler._preempt",
            "len(seqs) == 1",
            "[(manager.free(seq), seq.reset_state_for_recompute()) for seq in seqs[1:]] is not None",
        ),
        "read-back",
        "kvproof.check.oracle.scheduler.schedule",
    ),
    Rule(
        "commute",
        True,
        "kvproof",
        Config(block_size=2, num_gpu_blocks=4, caching=True),
        DISTURBING_COPIES,
        edit(GROWTH, "Growth._filled", "and not (index < len(table.ids) and cache.was_copied[table.ids[index]])", ""),
        "mapping-hazard-free",
        MAPPING,
    ),
]


def make_of(rule: Rule) -> Callable[[], Any]:
    """Makes the subject of the rule, without the declarations that a second rule is about."""

    def make() -> Any:
        subject: Any = find(rule.subject)()
        subject.capabilities = replace(capabilities_of(subject), refusal_slack=None, lost_hits=None)
        return subject

    return make


def functions_of(rule: Rule) -> dict[str, Any]:
    """The functions as the judge of the rule reads them; every machine of these sizes shares them."""
    found: list[dict[str, Any]] = []
    replay(make_of(rule), rule.config, (), watch=lambda judge: found.append(judge.explainer.machine.names))
    return found[0]


def finding_of(rule: Rule) -> str | None:
    finding = replay(make_of(rule), rule.config, rule.operations).finding
    return None if finding is None else finding.property


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.function} of {rule.subject}")
def test_a_fault_is_caught_by_this_function_alone(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding_of(rule) is None, "without the fault"
    with in_memory(rule.fault):
        assert finding_of(rule) == rule.property
        if rule.module:
            monkeypatch.setattr(f"{rule.module}.{rule.function}", lambda *arguments: rule.allows)
        else:
            monkeypatch.setitem(functions_of(rule), rule.function, lambda *arguments: rule.allows)
        assert finding_of(rule) is None, "without the function"
