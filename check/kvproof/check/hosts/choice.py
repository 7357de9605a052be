"""The workers that `--workers` names: a number of processes of this machine, or a Ray cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kvproof.check.hosts.workers import Shipping, StatefulWorkers
from kvproof.spec.extras import require_extra

RAY, RAY_CLIENT = "ray", "ray://"
NUM_PROCESSES_MAX = 256


def is_number(workers: str) -> bool:
    """Whether `--workers` names a number of processes of this machine."""
    return workers.isascii() and workers.isdigit() and 1 <= int(workers) <= NUM_PROCESSES_MAX


def _is_ray(workers: str) -> bool:
    host, colon, port = workers.removeprefix(RAY_CLIENT).rpartition(":")
    is_address = workers.startswith(RAY_CLIENT) and bool(host and colon) and port.isascii() and port.isdigit()
    return workers == RAY or is_address


def _processes(workers: str, shipping: Shipping | None) -> StatefulWorkers:
    from kvproof.check.hosts.pool import LocalWorkers

    return LocalWorkers(int(workers))


def _ray(workers: str, shipping: Shipping | None) -> StatefulWorkers:
    require_extra("ray", f"--workers {workers}")
    from kvproof.check.hosts.on_ray import RayWorkers

    return RayWorkers(None if workers == RAY else workers, shipping)


Open = Callable[[str, Shipping | None], StatefulWorkers]
# Each kind of workers: whether a text of `--workers` names it, and how it is opened.
KINDS: dict[Callable[[str], bool], Open] = {is_number: _processes, _is_ray: _ray}


def is_valid(workers: str) -> bool:
    """Whether `--workers` takes this text."""
    return any(is_named(workers) for is_named in KINDS)


@contextmanager
def opened(workers: str | None, shipping: Shipping | None = None) -> Iterator[StatefulWorkers | None]:
    """The workers that `--workers` names, until the end of the block; None without the option.

    shipping: for what their units need, where they are on other machines.

    Raises MissingExtra if Ray is not installed, and NoWorkers if there is no Ray at the address.
    """
    if workers is None:
        yield None
        return
    pool = next(open_kind for is_named, open_kind in KINDS.items() if is_named(workers))(workers, shipping)
    try:
        yield pool
    finally:
        pool.close()
