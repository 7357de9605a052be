"""ExLlamaV3's adapter, on releases that are brought in: these tests download."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

SCRIPTS = Path(__file__).parents[3] / "examples" / "reproductions"
WALK = """
import sys
from kvproof.check.subjects.exllamav3 import ExLlamaV3
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

subject = ExLlamaV3(sys.argv[1])
{change}
done = walk(MANAGERS, subject, 2, max_operations=20_000, seconds=300)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""
COPIES_TO_NOWHERE = """
from kvproof.check.subjects.exllamav3 import Cache
Cache.copy_page = lambda self, source_cache, source, target, num_tokens: None
"""
MOVES_NO_KV = """
from kvproof.check.subjects import exllamav3
exllamav3.EXTENSION.cache_rotate = lambda cache, rotations, buffer: None
"""


def output_of(program: str, release: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own, since the modules of a release stay imported."""
    download.add(f"exllamav3=={release}")
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=400)


@pytest.mark.engine
def test_a_release_that_defers_no_prompt_is_driven_and_not_refuted() -> None:
    output = output_of(WALK.format(change=""), "1.6.3", "1.6.3").stdout
    assert output.startswith("not refuted 20000")
    for witness in ("exchange", "share", "hit on an evictable block", "reserve", "admission NEVER"):
        assert witness in output


@pytest.mark.engine
def test_a_full_page_meets_a_claimed_one_that_is_not_computed() -> None:
    assert output_of(WALK.format(change=""), "1.6.5", "1.6.5").stdout.startswith("total-calls")


@pytest.mark.engine
@pytest.mark.parametrize(
    "run", ["exllamav3-kv-of-another-prefix-is-copied", "exllamav3-a-page-behind-a-shared-prompt-counts-as-first"]
)
def test_the_kv_of_another_prefix_is_copied_from_a_page_that_counts_as_the_first_of_a_prompt(run: str) -> None:
    trace = SCRIPTS.parent / "traces" / f"{run}.json"
    output = output_of(
        "import sys; from kvproof.check.cli import main; sys.exit(main())", "1.6.5", "replay", str(trace)
    )
    assert output.returncode == 1, output
    assert "is that of other tokens" in output.stdout


@pytest.mark.engine
@pytest.mark.parametrize("change", [COPIES_TO_NOWHERE, MOVES_NO_KV])
def test_kv_that_is_not_copied_is_noticed(change: str) -> None:
    assert output_of(WALK.format(change=change), "1.6.3", "1.6.3").stdout.startswith("total-calls")
