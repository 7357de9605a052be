"""LMDeploy's adapter, on a release that is brought in: these tests download."""

import subprocess
import sys

import pytest

from kvproof.check.subjects.loading import download

RELEASE = "0.18.0"
WALK = """
import sys
from kvproof.check.subjects.lmdeploy import LMDeploy, import_modules
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

modules = import_modules(sys.argv[1])
{change}
done = walk(MANAGERS, LMDeploy(sys.argv[1]), 1, max_operations=20_000, seconds=300)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""
TAKES_ANY_CHILD = """
modules.trie.BlockTrie._hash_block = staticmethod(lambda tokens, identity: int(tokens[0]))
modules.trie.BlockTrie._node_matches_block = staticmethod(lambda node, tokens, identity: True)
"""


def walked(change: str) -> str:
    """What a walk says; in a process of its own, since modules of a release stay imported."""
    download.add(f"lmdeploy=={RELEASE}")
    command = [sys.executable, "-c", WALK.format(change=change), RELEASE]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@pytest.mark.engine
def test_lmdeploy_is_driven_and_not_refuted() -> None:
    output = walked("")
    assert output.startswith("not refuted 20000")
    for witness in ("exchange", "share", "hit on an evictable block", "reserve"):
        assert witness in output


@pytest.mark.engine
def test_a_trie_that_compares_first_tokens_only_is_refuted() -> None:
    assert walked(TAKES_ANY_CHILD).split()[0] in ("sharing-equal", "hit-computed", "read-back")
