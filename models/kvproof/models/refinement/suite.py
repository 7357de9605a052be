"""All simulations, in the order in which they are proved. Their obligations are for every size."""

from collections.abc import Iterator
from dataclasses import replace

from kvproof.models.concolic.refusal import proof_of
from kvproof.models.obligation import Obligation, Unit
from kvproof.models.refinement import cached_steps, device_steps, simulation, table_steps
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation


def simulations(setting: Setting | None = None) -> Iterator[Simulation]:
    """The functions that are proved to refine the specification. setting: for a small instance, or for faulty code."""
    setting = setting or Setting()
    for kind in (device_steps, table_steps, cached_steps):
        yield from (replace(one, sizes=setting.sizes) for one in kind.simulations(setting))


def units() -> Iterator[Unit]:
    """One unit."""
    yield Unit(simulation.SUITE, simulation.SUITE, obligations)


def obligations() -> Iterator[Obligation]:
    for one in simulations():
        with proof_of(f"{simulation.SUITE}/{one.subject}"):
            yield from simulation.obligations(one)
