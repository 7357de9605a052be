"""The modules that hold the contracts of operations, and the contracts themselves. Judges do not load them."""

from types import ModuleType

import kvproof.spec.texts  # noqa: F401  # the first contract stands there
from kvproof.spec.contracts import (
    admit_contract,
    admit_progress,
    append_contract,
    end_contract,
    free_contract,
    send_contract,
    send_progress,
    swap_contract,
    swap_progress,
    swap_schedule,
)
from kvproof.spec.language import COLLECTED

CONTRACT_TEXTS: tuple[ModuleType, ...] = (
    append_contract,
    free_contract,
    end_contract,
    admit_progress,
    admit_contract,
    swap_schedule,
    swap_progress,
    swap_contract,
    send_progress,
    send_contract,
)
CONTRACTS = tuple(COLLECTED.contracts)
