"""What the adapters of vLLM V1 give for an option is the release's own default, or docs/engines.md says why not."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine

ENGINES = Path(__file__).parents[4] / "docs" / "engines.md"
RELEASES = ["0.20.2", "0.21.0", "0.22.0", "0.23.0", "0.24.0", "0.25.0", "0.26.0", "0.27.1", "0.28.0", "0.29.0"]
RELEASES += ["0.30.0", "0.31.0", "0.32.0", "0.33.0"]
CLASS_OF = {  # of each part of the configuration that the adapter gives
    "scheduler_config": "SchedulerConfig",
    "cache_config": "CacheConfig",
    "model_config": "ModelConfig",
    "parallel_config": "ParallelConfig",
    "observability_config": "ObservabilityConfig",
    "kv_transfer_config": "KVTransferConfig",
    "lora_config": "LoRAConfig",
    "speculative_config": "SpeculativeConfig",
}
SCRIPT = """
import json, sys
from dataclasses import replace
from kvproof.check.protocol.fault_attribution import OPTIONS_LEFT_OUT
from kvproof.check.protocol.scheduler import SchedulerConfig
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.vllm.v1_scheduler import VllmV1Scheduler

adapter = VllmV1Scheduler(sys.argv[1])
config = SchedulerConfig(block_size=4, num_gpu_blocks=64, caching=True, chunked=True, max_model_len=40)
config = replace(config, max_num_batched_tokens=64, transfers=True, max_loras=1, speculative_tokens=1)
config = replace(config, retention=0 if adapter.capabilities.retention else None)
adapter.open(config)
parts = {part: vars(value) for part, value in vars(adapter._options(config)).items() if hasattr(value, "__dict__")}
walk(SCHEDULERS, adapter, 1, max_operations=1_000, seconds=float("inf"))
print(json.dumps([parts, sorted(OPTIONS_LEFT_OUT)], default=repr))
"""
UNKNOWN = object()
NOT_OURS = {  # the default is made when the engine starts, from the model, the machine and how the engine is used
    "SchedulerConfig.async_scheduling",
    "SchedulerConfig.max_num_batched_tokens",
    "SchedulerConfig.max_num_seqs",
    "CacheConfig.block_size",
    "CacheConfig.mamba_cache_mode",
    "CacheConfig.num_gpu_blocks",
    "ModelConfig.max_model_len",
    "SpeculativeConfig.num_speculative_tokens",
}


def defaults_of(version: str) -> dict[str, Any]:
    """The defaults in the classes of a release's configuration, from their source: nothing of it is run."""
    found = {}
    for file in sorted((download.find("vllm", version) / "vllm" / "config").glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in CLASS_OF.values():
                for one in node.body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        found[f"{node.name}.{one.target.id}"] = value_of(one.value)
    return found


def value_of(node: ast.expr | None) -> Any:
    """The value of a default, also within `Field` and `field`; UNKNOWN if a function makes it, or there is none."""
    if isinstance(node, ast.Call):
        by_name = {keyword.arg: keyword.value for keyword in node.keywords}
        node = by_name.get("default")
    try:
        return UNKNOWN if node is None else ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def documented() -> set[str]:
    """The options that docs/engines.md names as other than vLLM's default, by class and name."""
    section = ENGINES.read_text(encoding="utf-8").partition("### Options of vLLM V1")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+\.\w+)`", section, re.M))


@pytest.mark.parametrize("version", RELEASES)
def test_an_option_is_as_by_default_or_documented(version: str) -> None:
    defaults = defaults_of(version)
    done = subprocess.run([sys.executable, "-c", SCRIPT, version], capture_output=True, text=True, check=True)
    parts, left_out = json.loads(done.stdout.splitlines()[-1])
    given = {f"{CLASS_OF[part]}.{name}": value for part in CLASS_OF for name, value in parts.get(part, {}).items()}
    differs = {name for name, value in given.items() if defaults.get(name, UNKNOWN) not in (UNKNOWN, value)}
    assert differs - NOT_OURS - documented() == set()
    on = {name for name, value in defaults.items() if value not in (UNKNOWN, None) and value}
    assert {name for name in on if name.partition(".")[2] in left_out} - documented() == set()


def test_the_documented_options_are_those_of_a_release() -> None:
    known = {name for version in RELEASES for name in defaults_of(version)}
    assert documented()
    assert documented() <= known
