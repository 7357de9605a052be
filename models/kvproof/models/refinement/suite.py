"""All simulations, in the order in which they are proved."""

from collections.abc import Iterator

from kvproof.models.proofs.obligation import Obligation
from kvproof.models.refinement import cached_steps, device_steps, simulation, table_steps
from kvproof.models.refinement.setting import Setting
from kvproof.models.refinement.simulation import Simulation


def simulations(setting: Setting | None = None) -> Iterator[Simulation]:
    """Every function that is proved to refine the specification. setting: that of an instance, or of faulty code."""
    setting = setting or Setting()
    yield from device_steps.simulations(setting)
    yield from table_steps.simulations(setting)
    yield from cached_steps.simulations(setting)


def obligations() -> Iterator[Obligation]:
    """What is to be proved of all of them, for all sizes."""
    for one in simulations():
        yield from simulation.obligations(one)
