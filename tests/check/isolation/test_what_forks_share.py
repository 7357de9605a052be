"""What a fork of a subject's process has from its server, so that no unit of work does it again."""

import functools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lawful.encoders import Oldest

from kvproof.check.hosts.time_limit import Limits
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.level import LEVELS, Level, compile_rules, compile_rules_of_encoders, compile_rules_of_stores
from kvproof.check.protocol.manager import Config
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import STRATEGIES
from kvproof.check.subjects.registry import find
from kvproof.spec import compilation, native

OWN: dict[str, Callable[[], Any]] = {
    "manager": find("kvproof"),
    "scheduler": find("kvproof-scheduler"),
    "pool": find("kvproof-pool"),
    "store": find("kvproof-store"),
    "encoder": Oldest,
    "pair": find("kvproof-pair"),
}
OBJECTS = """
import gc
from kvproof.check.subjects.builtin.manager import BuiltIn

class Counts(BuiltIn):
    kept = [[] for _ in range(100_000)]
    def hits(self, group):
        return [gc.get_freeze_count(), gc.isenabled(), *gc.get_threshold()]
"""


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_walk_compiles_no_rules_once_those_of_its_level_are_compiled(level: Level) -> None:
    caches: tuple[functools._lru_cache_wrapper[object], ...] = (
        compile_rules,
        compile_rules_of_stores,
        compile_rules_of_encoders,
        compilation._compiled,
        compilation._compiled_text,
        compilation.namespace,
        native._maker,
        compilation.sized_function,
    )
    for cache in caches:
        cache.cache_clear()
    level.compile()
    num_compiled = compilation._compiled.cache_info().misses
    done = walk(STRATEGIES[level.name], OWN[level.name](), 1, max_operations=300, seconds=100.0)
    assert done.num_operations >= 300
    assert compilation._compiled.cache_info().misses == num_compiled > 0


def test_the_collector_of_a_fork_leaves_alone_what_its_server_has(tmp_path: Path) -> None:
    (tmp_path / "objects.py").write_text(OBJECTS)
    factory = RemoteFactory(f"{tmp_path / 'objects.py'}:Counts", Limits())
    subject = factory()
    subject.open(Config())
    num_frozen, is_enabled, *threshold = subject.hits(1)
    factory.close()
    assert num_frozen > 100_000
    assert is_enabled
    usual = subprocess.run([sys.executable, "-c", "import gc; print([*gc.get_threshold()])"], capture_output=True)
    assert repr(threshold) == usual.stdout.decode().strip()


def test_a_threshold_of_the_collector_that_a_subject_has_set_stays(tmp_path: Path) -> None:
    (tmp_path / "objects.py").write_text(OBJECTS + "gc.set_threshold(123, 4, 5)\n")
    factory = RemoteFactory(f"{tmp_path / 'objects.py'}:Counts", Limits())
    subject = factory()
    subject.open(Config())
    threshold = subject.hits(1)[2:]
    factory.close()
    assert threshold == [123, 4, 5]
