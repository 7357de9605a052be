"""What a reader has before the commands of a page, and the commands that are not run, each with its reason.

Paths of pages are relative to `docs/`. A command is named by its beginning.
"""

ENGINES = "engines add", "vllm-v", "sglang", "transformers==", "lmdeploy", "benchmarks manager"  # it needs a release

PREPARED = {
    "../README.md": """
        echo 'from kvproof.impl import BlockManager, Sequence, SequenceGroup' >serve.py
        echo 'BlockManager(4, 8, 0).allocate(SequenceGroup("1", [Sequence(1, [1, 2, 3], 4)]))' >>serve.py
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
MACHINES = "it needs a cluster; tests/check/workers runs a small one"
MAKE = "it is a target of the Makefile, which CI runs"
NOT_RUN = {
    "../README.md": {"make ": MAKE, "kvproof init": "`tutorial.md` runs it, and shows the exit code 2"},
    "blind-spots.md": {"kvproof faults --of impl --jobs": "it takes an hour; `make faults` runs it"},
    "data-plane.md": {"make gpu": "it needs a GPU; tests/benchmarks try its stages without one"},
    "engines.md": {"kvproof hunt --subject mini-sglang==PATH": "it needs a checkout, which no index has"},
    "findings.md": {"kvproof bisect": "it needs each release of the range; the engine tests replay these traces"},
    "install.md": {"python -m pip": INDEX},
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
        "kvproof hunt --subject vllm-v0==0.5.4": MACHINES,
        "pip install": INDEX,
        "kvproof campaign nightly.toml --workers 8": "it takes a night",
        "kvproof explore --scope tables-6x4x8": "a scope of minutes to hours; tests/check/workers search smaller ones",
    },
}
