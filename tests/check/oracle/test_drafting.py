"""With a draft model, the last block that a look-up finds is computed again."""

from dataclasses import replace

import pytest

from kvproof.check.oracle.manager import ManagerJudge
from kvproof.check.protocol.finding import Finding
from kvproof.check.protocol.manager import Admitted, Config, Refused
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS
from kvproof.check.subjects.builtin.manager import BuiltIn

DRAFTS = replace(BuiltIn.capabilities, drafting=True)


class Drops(BuiltIn):
    """It reports a hit of one block less, and computes that block again."""

    capabilities = DRAFTS

    def admit(self, group: int, num_tokens: int) -> Admitted | Refused:
        answer = super().admit(group, num_tokens)
        if self.config.drafting and isinstance(answer, Admitted):
            return Admitted(max(0, answer.hit - self.config.block_size))
        return answer


class Keeps(BuiltIn):
    """It hits all that it finds."""

    capabilities = DRAFTS


def admit_twice(subject: BuiltIn) -> None:
    """Two equal prompts of two blocks and a half, one after the other; each has a block left after a hit of one."""
    judge = ManagerJudge(subject, Config(block_size=2, num_gpu_blocks=8, caching=True, drafting=True))
    for group in (1, 2):
        for operation in (("new", group, (group,), (0, 1, 0, 1, 0)), ("admit", group, 1), ("run", 0)):
            assert judge.apply(operation)


def test_a_hit_that_leaves_the_last_block_found_is_right() -> None:
    admit_twice(Drops())


def test_a_hit_of_all_that_was_found_is_refuted() -> None:
    with pytest.raises(Finding, match="a hit of 4 tokens, and the cache has no block after them") as found:
        admit_twice(Keeps())
    assert found.value.property == "hit-computed"


def test_a_walk_draws_drafting_and_finds_the_manager_that_keeps_the_last_block() -> None:
    fixed = {"caching": True}
    done = walk(MANAGERS, Keeps(), 1, max_operations=20_000, seconds=60, fixed=fixed)
    assert done.finding is not None
    assert done.finding.property == "hit-computed"
