"""`kvproof faults` checks kvproof itself: a checkout has the command, and an installed wheel says that it needs one."""

from collections.abc import Callable
from importlib.util import find_spec

from kvproof.check.runs.errors import UsageError, error_boundary

NEEDS_A_CHECKOUT = (
    "kvproof faults checks kvproof itself and needs a checkout of its repository; "
    "run `make .venv` there, and then `.venv/bin/kvproof faults`"
)


def faults() -> None:
    """Plant faults in kvproof and in copies of block managers; report which judge notices each. Needs a checkout.

    The command checks kvproof itself, so what it needs is not installed. `make .venv` in a checkout of kvproof's
    repository makes an environment that has it.
    """
    with error_boundary():
        raise UsageError(NEEDS_A_CHECKOUT)


def faults_command() -> Callable[..., None]:
    """The command of a checkout; that above where there is none."""
    if find_spec("kvproof.audit") is None:
        return faults
    from kvproof.audit.cli.faults import faults as of_a_checkout

    return of_a_checkout
