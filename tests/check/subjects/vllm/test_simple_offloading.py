"""vLLM's scheduler with its own SimpleCPUOffloadConnector: what is stored, held and loaded, and a known fault."""

from typing import Any

import pytest

from kvproof.check.oracle.scheduler.judge import SchedulerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Unsupported
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import find

pytestmark = pytest.mark.engine
RELEASE = "0.33.0"
EAGER = SchedulerConfig(
    num_gpu_blocks=5, block_size=2, caching=True, max_model_len=7, max_num_seqs=1, connector="eager", host_slots=8
)
NEXT = (("schedule",), ("launch",), ("complete", (1,)))
FIRST = (("add", 1, (1,), (0, 1, 2, 3), 1), *NEXT)


def judged(config: SchedulerConfig, *operations: tuple[Any, ...]) -> SchedulerJudge:
    """The judge after this run. Raises Finding."""
    download.add(f"vllm=={RELEASE}")
    subject: Any = find(f"vllm-simple-offloading=={RELEASE}")()
    judge = SchedulerJudge(subject, config)
    for operation in operations:
        assert judge.apply(operation), operation
    return judge


def test_the_last_store_of_a_request_holds_its_blocks_before_a_step_names_it() -> None:
    judge = judged(EAGER, *FIRST)
    held = judge.scheduler.held
    assert held is not None
    assert [len(blocks) for blocks, _ in held.to_come] == [2]
    assert judge.apply(("schedule",))
    assert (held.to_come, [len(flights) for flights in held.named.values()]) == ([], [2])


def test_what_left_the_device_is_loaded_from_the_host() -> None:
    stored = (
        ("schedule",),
        ("launch",),
        ("complete", (1,)),
        ("schedule",),
        ("launch",),
        ("complete", (1,), (), (), (), (0,)),
    )
    other = (("add", 2, (2,), (7, 7, 7, 7, 7, 7), 1), ("schedule",), ("launch",), ("complete", (1,), (), (), (), ()))
    again = (("add", 3, (3,), (0, 1, 2, 3, 4), 1), ("drain", (1,)))
    judge = judged(EAGER, *FIRST, *stored, *other, *again)
    assert (judge.coverage["load from host memory"], judge.is_done()) == (1, True)


def test_the_lazy_mode_of_a_small_host_stores_for_ever() -> None:
    config = SchedulerConfig(
        num_gpu_blocks=5, block_size=2, caching=True, max_model_len=5, max_num_seqs=2, connector="lazy", host_slots=2
    )
    run = (("add", 1, (1,), (0,), 3), ("schedule",), ("add", 2, (2,), (1, 1), 3), ("drain", (0,)))
    with pytest.raises(Finding, match="no request is left, and the connector has stored") as caught:
        judged(config, *run)
    assert caught.value.property == "progress"


def test_without_a_prefix_cache_the_connector_is_not_driven() -> None:
    with pytest.raises(Unsupported, match="nothing without a prefix cache"):
        judged(SchedulerConfig(num_gpu_blocks=5, block_size=2, caching=False, connector="eager"))
