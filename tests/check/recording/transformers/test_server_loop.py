"""A real server loop of transformers is recorded and judged: a tiny model with random weights on the CPU.

It needs a Python with transformers 5.20 or newer and torch beside kvproof: `pip install transformers`, then
`pytest -m long tests/check/recording/transformers`.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.recording.validate import Validation, validate

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]
NUM_REQUESTS = 40
SERVE = """
import random, sys
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation import continuous_batching
from transformers.generation.configuration_utils import ContinuousBatchingConfig

num_blocks, num_answers, fault = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
exec(fault)
torch.manual_seed(0)
torch.set_num_threads(1)
sizes = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2)
heads = dict(num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512)
model = LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()
draw = random.Random(1)
common = [[draw.randrange(64) for _ in range(20)] for _ in range(3)]
own = [[draw.randrange(64) for _ in range(draw.randint(1, 12))] for _ in range(40)]
prompts = [draw.choice(common)[: draw.randint(0, 20)] + tokens for tokens in own]
settings = ContinuousBatchingConfig(page_size=4, num_blocks=num_blocks, max_batch_tokens=32, use_cuda_graph=False)
wanted = GenerationConfig(max_new_tokens=12, do_sample=True, eos_token_id=3, num_return_sequences=num_answers)
done = model.generate_batch(prompts, generation_config=wanted, continuous_batching_config=settings)
print([(name, one.generated_tokens, one.error) for name, one in sorted(done.items())])
"""


def served(folder: Path, num_blocks: int, num_answers: int, fault: str, is_recorded: bool = True) -> str:
    """What the server prints. Its recording is `recording.jsonl` in the folder."""
    server = folder / "serve.py"
    server.write_text(SERVE)
    command = [sys.executable, str(server), str(num_blocks), str(num_answers), fault]
    if is_recorded:
        kvproof = "from kvproof.check.cli import main; main()"
        command = [sys.executable, "-c", kvproof, "record", "--out", "recording.jsonl", "--", *command]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith("["))


def recorded(folder: Path, num_blocks: int, num_answers: int, fault: str = "") -> Validation:
    served(folder, num_blocks, num_answers, fault)
    return validate(folder / "recording.jsonl")


def test_a_loop_with_room_answers_the_same_with_a_recorder_and_is_consistent(tmp_path: Path) -> None:
    answers = served(tmp_path, 60, 1, "")
    assert answers == served(tmp_path, 60, 1, "", is_recorded=False)
    done = validate(tmp_path / "recording.jsonl")
    assert (done.finding, done.reason) == (None, "")
    assert done.num_calls > 20 * NUM_REQUESTS
    assert done.witnesses["hit"] > 5


def test_a_loop_that_forks_in_a_full_pool_is_consistent(tmp_path: Path) -> None:
    done = recorded(tmp_path, 24, 2)
    assert (done.finding, done.reason) == (None, "")
    assert {"forked by itself", "exchange after a step", "evict", "pool full"} <= set(done.witnesses)


FAULTS = {
    "a found block gets no holder": (
        "allocator.CacheAllocator", "acquire_prefix_blocks",
        "lambda self, name, length, found: self.block_table.__setitem__(name, found[:length // self.tokens_per_page])",
    ),
    "an ended request keeps its last block": (
        "allocator.CacheAllocator", "free_blocks",
        "lambda self, name, *more: (self.block_table.get(name, []) and self.block_table[name].pop(),"
        " before(self, name, *more))",
    ),
    "a step writes to the block before": (
        "full.FullAttentionCacheAllocator", "get_write_indices",
        "lambda self, *all: [at - self.block_physical_stride for at in before(self, *all)]",
    ),
    "blocks are given to two requests": (
        "pool.CachePool", "get_free_blocks",
        "lambda self, index, number: [given := before(self, index, number),"
        " self.free_blocks(index, given[:1])][0]",
    ),
}  # fmt: skip
IMPORTS = (
    "from transformers.generation.continuous_batching.cache_allocators import cache_allocator as allocator\n"
    "from transformers.generation.continuous_batching.cache_allocators import cache_pool as pool\n"
    "from transformers.generation.continuous_batching.cache_allocators import full_attention as full\n"
)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_planted_in_the_loop_is_found(name: str, tmp_path: Path) -> None:
    kind, method, code = FAULTS[name]
    done = recorded(tmp_path, 60, 1, f"{IMPORTS}before = {kind}.{method}\n{kind}.{method} = {code}")
    assert done.finding is not None, done.reason
