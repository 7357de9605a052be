"""Proofs that some functions of `kvproof.impl` refine the specification, for every size.

The function itself runs on containers of symbolic length (`unbounded`), path by path. The translator runs the rule of
the specification that the call corresponds to. The two final states must agree (`abstraction` defines that). This works
for functions without loops, and for loops over any number of blocks (`loops`, `cuts`). What the relation does not name
is unknown before the call (`forget`), and as it was after it; every path is repeated with plain numbers (`replay`). So
far: `DeviceBlocks`, the append within one block, and the manager's `free` and `fork`, without a prefix cache; the fork
of a table; and with a prefix cache, pinning a block that was found, the append within one block while an id without
content is free, and two loops over any number of blocks. The
rest of the manager has bounded proofs at most (`kvproof.models.concolic`, up to four blocks); the judges check it by
running it in lockstep with the specification.
"""

from collections.abc import Iterator
from dataclasses import replace

from kvproof.models.concolic.refusal import proof_of
from kvproof.models.obligation import Obligation, Unit
from kvproof.models.refinement import (
    cached_loops,
    cached_steps,
    device_steps,
    forking_steps,
    freeing_steps,
    simulation,
    table_steps,
    take_steps,
)
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation


def simulations(setting: Setting | None = None) -> Iterator[Simulation]:
    """The functions that are proved to refine the specification. setting: for a small instance, or for faulty code."""
    setting = setting or Setting()
    for kind in (device_steps, take_steps, table_steps, cached_steps, cached_loops, freeing_steps, forking_steps):
        yield from (
            replace(one, sizes=setting.sizes, everywhere=setting.everywhere) for one in kind.simulations(setting)
        )


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit(simulation.SUITE, simulation.SUITE, obligations)


def obligations() -> Iterator[Obligation]:
    for one in simulations():
        with proof_of(f"{simulation.SUITE}/{one.subject}"):
            yield from simulation.obligations(one)
