"""What a worker does in a campaign: a part of a walk, or the search for the shortest run of a finding."""

import os
import platform
import time
from dataclasses import dataclass
from typing import Any

from kvproof.check.hosts.workers import Lack
from kvproof.check.hunting.findings import LONG, NUM_WALKS_MAX
from kvproof.check.hunting.unit import Judged, WalkUnit, factory_of, walk_unit
from kvproof.check.isolation.messages import pack, unpack
from kvproof.check.isolation.remote_search import shortest
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import AdapterError
from kvproof.check.search.strategies import STRATEGIES
from kvproof.check.subjects import UnknownSubject


@dataclass(frozen=True)
class Done:
    """A unit that was done, and by whom. answer: packed."""

    worker: str
    seconds: float
    answer: Any


@dataclass(frozen=True)
class ShortenUnit:
    """A finding whose shortest run is wanted. found: packed. max_operations: replayed at most."""

    subject: Judged
    seed: int
    found: Any
    max_operations: int

    @property
    def need(self) -> str:
        """The subject that a worker must be able to make."""
        return self.subject.name


def search(unit: WalkUnit) -> Done | Lack:
    """Do a part of a walk. A worker that cannot make the subject says why."""
    began, name = time.monotonic(), f"{platform.node()}:{os.getpid()}"
    try:
        walks = walk_unit(unit)
        return Done(name, time.monotonic() - began, walks)
    except (UnknownSubject, AdapterError) as error:
        return Lack(str(error), unit.need)


def shorten(unit: ShortenUnit) -> Any:
    """The shortest run of the finding, packed."""
    found: Counterexample = unpack(unit.found)
    strategy = STRATEGIES[level_of_config(found.config).name]
    bounds: dict[str, Any] = {"long": LONG, "walks": NUM_WALKS_MAX, "max_operations": unit.max_operations}
    return pack(shortest(strategy, factory_of(unit.subject), found, seconds=float("inf"), seed=unit.seed, **bounds))
