"""What `enabled` yields is what `apply` does: the searches draw from the one, and replays rely on the other."""

from random import Random

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.manager import Config
from kvproof.check.search.manager_operations import ManagerOperations
from kvproof.check.subjects.registry import find
from kvproof.spec.trace import Operation

RUN_LENGTH = 60
CONFIGS = {
    "tables": Config(num_gpu_blocks=6),
    "cache": Config(num_gpu_blocks=6, caching=True),
    "chunks": Config(num_gpu_blocks=8, chunked=True, caching=True),
    "swap": Config(num_gpu_blocks=4, num_host_blocks=4, group_size=2),
    "encoder": Config(num_gpu_blocks=8, num_host_blocks=4, cross=True),
    "window": Config(num_gpu_blocks=6, window=4),
}


def is_enabled(judge: ManagerJudge, operation: Operation) -> bool:
    kind, *arguments = operation
    about = judge.enabled().get(kind)
    return about is not None and (not about or arguments[0] in about)


def every_operation(judge: ManagerJudge, unused: int) -> list[Operation]:
    """Each kind about each group and sequence that there is, and about one that there is not."""
    rest = {"admit": (3,), "extend": (3,), "sample": ((0, 0, 0, 0),), "fork": (unused,)}
    about = {kind: judge.seqs if kind in ("extend", "fork", "free") else judge.groups for kind in ManagerJudge.kinds}
    operations: list[Operation] = [("run", 0), ("fail",), ("reset",)]
    for kind in ManagerJudge.kinds:
        if kind not in ("new", "run", "fail", "reset"):
            operations += [(kind, one, *rest.get(kind, ())) for one in (*about[kind], unused)]
    return operations


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("subject", ["kvproof", "kvproof-generation1"])
def test_an_operation_is_done_exactly_if_it_is_enabled(subject: str, name: str) -> None:
    num_disabled, num_enabled = 0, 0
    for seed in range(12):
        driver = ManagerOperations(find(subject)(), Random(seed), CONFIGS[name])
        for _ in range(RUN_LENGTH):
            for operation in every_operation(driver.judge, 999):
                if not is_enabled(driver.judge, operation):
                    assert not driver.judge.apply(operation), operation
                    num_disabled += 1
            drawn = driver.draw()
            if drawn is not None:
                assert is_enabled(driver.judge, drawn)
                assert driver.judge.apply(drawn), drawn
                num_enabled += 1
    assert num_disabled > num_enabled > RUN_LENGTH
