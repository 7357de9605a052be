"""What a reader has before the commands of a page, what is around a block of code that is a part of a file, and the
commands and blocks that are not run, each with its reason.

Paths of pages are relative to `docs/`. A command is named by its beginning, and so is a block.
"""

from typing import NamedTuple

ENGINES = "engines add", "vllm-v", "sglang", "transformers==", "lmdeploy", "benchmarks manager"  # it needs a release

PREPARED = {
    "../README.md": """
        mkdir tests && cp examples/forty_lines.py tests/adapter.py
        git init --quiet --initial-branch=main . && git add tests
        git -c user.name=name -c user.email=name@example.org commit --quiet --message=base
    """,
    "ci.md": """
        mkdir yourpackage tests
        echo 'from examples.forty_lines import Adapter as make_manager' >yourpackage/blocks.py
        cp examples/forty_lines.py tests/adapter.py
    """,
    "history.md": "echo 'from examples.forty_lines import Adapter' >adapter.py",
    "own-manager.md": """
        mkdir yourpackage
        echo 'from kvproof.check.subjects.builtin.scheduler import BuiltInScheduler as make' >yourpackage/scheduler.py
        echo 'from kvproof.check.subjects.builtin.pool import OwnPool as make' >yourpackage/pool.py
    """,
    "pipe.md": "cc -o manager examples/pipe_manager.c",
}

INDEX = "it installs from a package index; tests/test_install.py installs the wheel"
MACHINES = "it needs a cluster; tests/check/hosts runs a small one"
CHECKOUT = "it needs a git repository with a checkout; tests/check/hunting/gate has a small one"
MAKE = "it is a target of the Makefile, which CI runs"
NOT_RUN = {
    "../README.md": {"make ": MAKE, "kvproof gate --subject vllm-v1": CHECKOUT},
    "blind-spots.md": {"kvproof faults --of impl --jobs": "it takes an hour; `make faults` runs it"},
    "ci.md": {"kvproof gate": CHECKOUT},
    "corpus.md": {
        "kvproof corpus reproduce": "it downloads releases; tests/check/hunting/corpus show one fault",
        "kvproof corpus run": "it takes hours; `make corpus` runs it",
    },
    "findings.md": {"kvproof corpus reproduce": "it downloads releases; tests/check/hunting/corpus show one fault"},
    "data-plane.md": {
        "make gpu": "it needs a GPU; tests/benchmarks try its stages without one",
        "python3 -m benchmarks.gpu_kernels": "it needs nvcc and the sources of engines; `make gpu ENGINES=` runs it",
    },
    "engines.md": {
        "kvproof hunt --subject vllm-v1==./vllm": "it needs a checkout; tests/check/subjects/loading judges some",
    },
    "how-to/pull-request.md": {"kvproof gate": CHECKOUT},
    "install.md": {"python -m pip": INDEX},
    "own-manager.md": {
        "kvproof hunt --level encoder": "kvproof has no such cache of its own; tests/check/oracle/encoder have some"
    },
    "recording.md": {
        "kvproof record --out trace.jsonl -- python generate.py": "it needs a model; tests/check/recording has one"
    },
    "peers.md": {"make peers": MAKE},
    "proofs.md": {
        "kvproof prove --no-cache": "`make proofs-record` asks the solver everything",
        "kvproof prove --second-solver": "`make soak` runs it",
        "kvproof prove --certificates": "it takes seven minutes; tests/models prove a part so",
        "kvproof verify": "`make verify` runs it",
        "make check-certificates": "it needs ethos, which is built from sources",
        "git clone": "it needs a network",
        "cvc5/": "it needs the clone",
        "ETHOS=": "it needs ethos, which is built from sources",
    },
    "scale.md": {
        "kvproof hunt --subject vllm-v0==0.5.4 --seed 1 --effort long --workers 8": "5,000,000 operations of an engine;"
        " tests/check/hosts divide shorter hunts",
        "kvproof hunt --subject vllm-v0==0.5.4 --seed 1 --effort long --workers ray": MACHINES,
        "pip install": INDEX,
        "kvproof campaign nightly.toml --workers 8": "it takes a night",
        "kvproof explore --scope tables-6x4x8 --blocks 8": MACHINES,
    },
}


class Frame(NamedTuple):
    """A file with the block in it, and a command that runs it, which must end with exit code 0 or 1."""

    path: str
    command: str
    before: str = ""
    after: str = ""


ADAPTED = "from examples.forty_lines import Adapter, BlockManager\n"
NAMES = "from kvproof.check import Config, ManagerAdapter, ManagerCan, run_conformance\n"
SCHEDULER = """
from types import SimpleNamespace
from kvproof.impl import BlockManager
scheduler = SimpleNamespace(kv_cache_manager=BlockManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0))
"""
POOLS = """
from pathlib import Path
import torch
from kvproof.impl.kv_store import TieredStore
gpu_planes, cpu_planes = [torch.zeros((32, 8), dtype=torch.int64)], [torch.zeros((4, 8), dtype=torch.int64)]
key = bytes(32)
"""
LINE = """python -c "import msgspec; from kvproof.check.recording.format import RecordedCall
msgspec.json.decode(open('line.jsonl').read(), type=RecordedCall)" """
PLAN = """python -c "from pathlib import Path; from kvproof.check.hunting.plan import read_plan
read_plan(Path('campaign.toml'))" """
FRAMES = {
    "../README.md": {
        "from kvproof.check import ManagerAdapter": Frame(
            "test_adapter.py", "python -m pytest test_adapter.py", ADAPTED
        )
    },
    "ci.md": {
        "[tool.pytest.ini_options]": Frame(
            "pyproject.toml",
            "mkdir -p tests/crashes && cp examples/traces/f4-*.json tests/crashes &&"
            " python -m pytest --collect-only | grep f4- && rm -r pyproject.toml tests/crashes",
        ),
        "def test_the_manager_conforms(kvproof_options)": Frame(
            "test_options.py", "python -m pytest test_options.py --kvproof-budget 2", ADAPTED + NAMES
        ),
        "[[known]]": Frame(
            "known.toml",
            "rm kvproof.toml &&"  # its baseline is of another subject
            " kvproof hunt --subject examples/forty_lines.py:Adapter --effort 2000 --seed 1 --known known.toml",
        ),
    },
    "data-plane.md": {
        "def move(caches, moves)": Frame(
            "own.py", "kvproof device --device cpu --layout nhd --dtype int8 --executor own.py:move --seed 1"
        )
    },
    "engines.md": {
        "from pathlib import Path": Frame(
            "store.py", "python store.py", "import hashlib\nkey, data = hashlib.sha256(b'1').digest(), bytes(1 << 20)\n"
        ),
        "from kvproof.impl.kv_store.device": Frame(
            "device_blocks.py", "python device_blocks.py", POOLS, "assert blocks.find([key]) == 1\n"
        ),
    },
    "own-manager.md": {
        "from kvproof.check import run_conformance": Frame("test_it.py", "python -m pytest test_it.py", ADAPTED),
        "class Adapter(ManagerAdapter)": Frame(
            "adapted.py",
            "python adapted.py",
            ADAPTED + NAMES,
            '\nif __name__ == "__main__":\n    run_conformance(Adapter, operations=500)\n',
        ),
    },
    "recording.md": {
        "from kvproof.check.recording import record": Frame(
            "recorded.py", "python recorded.py", SCHEDULER, "\nrecorder.close()\n"
        ),
        "from kvproof.check.recording import watch": Frame("watched.py", "python watched.py", SCHEDULER),
        '{"n":': Frame("line.jsonl", LINE),
    },
    "scale.md": {
        "out = ": Frame(
            "campaign.toml",
            PLAN,
        )
    },
}

GITHUB = "it runs on GitHub; tests/test_workflows.py checks the action and the workflow"
BLOCKS_NOT_RUN = {
    "architecture.md": {"spec/      the specification": "a list of folders", "8   cli   conformance.py": "a drawing"},
    "ci.md": {
        "on: [pull_request]": GITHUB,
        "jobs:": GITHUB,
        "block-manager:": "it runs on GitLab",
        "trusted_subjects": "the configuration of the repository on the same page has this line",
    },
    "data-plane.md": {"PCIe link": "facts of one machine"},
    "how-to/pull-request.md": {"on:": GITHUB},
    "own-manager.md": {
        "class Adapter(forty_lines.Adapter)": "tests/check/oracle/test_own_property.py runs such an adapter",
        "manager = BlockManager(1, 1)": "the end of a script that tests/check/counterexample/test_plain_script.py runs",
        '[project.entry-points."kvproof.subjects"]': "a part of examples/subjects_package/pyproject.toml",
    },
    "history.md": {
        " run        started": "ids, times and speeds of one machine; the command above it prints such a table"
    },
}
