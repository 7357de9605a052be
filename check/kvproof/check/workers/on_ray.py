"""Workers that are processes of a Ray cluster, which is started on this machine if no address is given.

Every unit is a Ray task. Ray starts a task again whose worker or node is lost; what Ray gives up is submitted again
here. A worker uses the subject's files under the same path as this process, and refuses units of another kvproof.
"""

import logging
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reads it when it is imported

import ray

from kvproof.check.subjects.descendants import MARK, end_marked, marked
from kvproof.check.workers.keepers import Keeper
from kvproof.check.workers.sources import code_digest
from kvproof.check.workers.workers import (
    NUM_TRIES_MAX,
    SECONDS_MAX,
    Answer,
    Lost,
    Make,
    NoWorkers,
    Outcome,
    Request,
    WorkerLost,
    done,
    value_of,
)

NUM_AHEAD, NUM_AHEAD_MIN = 4, 16  # units for each processor, submitted before the result of the oldest one is there
CONNECT_PAUSE_SECONDS = 3.0
TIMED_OUT = "timed out during startup"  # in the text of an exception that has no class of its own
STORE_BYTES = 100_000_000  # of Ray's store of objects on this machine: a result has a few kilobytes


class RayWorkers:
    """The workers of a Ray cluster. address: ray://HOST:PORT; None starts a cluster on this machine.

    Raises NoWorkers if there is no Ray at the address.
    """

    def __init__(self, address: str | None = None) -> None:
        self.name = address or "ray"
        self._ending = ExitStack()
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            if address is None:
                self._start(quiet)
            else:
                _connect(address, quiet)
        except BaseException:
            self._ending.close()
            raise
        self._ending.callback(ray.shutdown)
        self._task = ray.remote(max_retries=NUM_TRIES_MAX - 1)(_do)
        self._place = _Place(code_digest(), os.getcwd(), tuple(sys.path))

    def _start(self, quiet: dict[str, Any]) -> None:
        """Start Ray here. Everything that it starts has a mark, and what it writes is in a folder that is removed."""
        folder = self._ending.enter_context(
            tempfile.TemporaryDirectory(prefix="kvproof-ray-", ignore_cleanup_errors=True)
        )
        mark, environment = marked()
        self._ending.callback(end_marked, mark)
        before = os.environ.get(MARK)
        os.environ[MARK] = environment[MARK]
        try:
            _init_slowly(include_dashboard=False, object_store_memory=STORE_BYTES, _temp_dir=folder, **quiet)
        finally:
            if before is None:
                del os.environ[MARK]
            else:
                os.environ[MARK] = before

    def results(self, do: Callable[[Any], Answer], units: Iterable[Any]) -> Generator[Answer, None, None]:
        """As `Workers.results`."""
        source, is_over = iter(units), False
        begun = deque[tuple[Any, Any]]()  # units and references of their results, in order
        num_ahead = max(NUM_AHEAD_MIN, NUM_AHEAD * int(ray.cluster_resources().get("CPU", 1)))
        try:
            while True:
                while not is_over and len(begun) < num_ahead:
                    unit = next(source, begun)
                    if unit is begun:
                        is_over = True
                        break
                    begun.append((unit, self._task.remote(self._place, do, unit)))
                if not begun:
                    return
                outcome = self._outcome(do, *begun[0])
                begun.popleft()
                yield value_of(outcome)
        finally:
            for _, reference in begun:
                with suppress(Exception):
                    ray.cancel(reference, force=False)

    def _outcome(self, do: Callable[[Any], Any], unit: Any, reference: Any) -> Outcome:
        for _ in range(NUM_TRIES_MAX):
            try:
                outcome: Outcome = ray.get(reference, timeout=SECONDS_MAX)
                return outcome
            except ray.exceptions.RayTaskError as error:  # what the task raised outside the unit, such as an import
                raise WorkerLost(f"a worker of {self.name} cannot do units of kvproof: {error}") from error
            except ray.exceptions.RayError as error:
                lost = error
                if isinstance(error, TimeoutError):
                    with suppress(ray.exceptions.RayError):
                        ray.cancel(reference, force=True)
                reference = self._task.remote(self._place, do, unit)
        raise WorkerLost(f"{NUM_TRIES_MAX} times the workers of a unit were lost: {lost}: {unit}")

    def keepers(self, make: Make) -> "RayKeepers":
        """As `Workers.keepers`."""
        return RayKeepers(self._place, max(1, int(ray.cluster_resources().get("CPU", 1))), make)

    def close(self) -> None:
        """Leave the cluster, and end it if this process started it."""
        self._ending.close()


def _init_slowly(**options: Any) -> None:
    """Start Ray here. On a busy machine it gives up after half a minute, and is started again."""
    for num_tries in range(1, NUM_TRIES_MAX + 1):
        try:
            ray.init("local", **options)
            return
        except Exception as error:
            ray.shutdown()
            if num_tries == NUM_TRIES_MAX or TIMED_OUT not in str(error):
                raise


class RayKeepers:
    """Keepers that are actors of a Ray cluster, each on a processor of its own, on as many nodes as there are."""

    def __init__(self, place: "_Place", num: int, make: Make) -> None:
        self.num, self._place, self._make = num, place, make
        self._actor = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(_RayKeeper)
        self._actors = [self._started(number) for number in range(num)]

    @property
    def process_ids(self) -> list[int]:
        """As `Keepers.process_ids`."""
        return [ray.get(actor.process_id.remote()) for actor in self._actors]

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """As `Keepers.answers`."""
        references = {n: self._actors[n].answer.remote(*request) for n, request in requests.items()}
        found: dict[int, Any] = {}
        for number, reference in references.items():
            try:
                found[number] = value_of(ray.get(reference))
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
                found[number] = Lost.LOST
        return found

    def replace(self, number: int) -> None:
        """As `Keepers.replace`."""
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actors[number])
        self._actors[number] = self._started(number)

    def _started(self, number: int) -> Any:
        return self._actor.remote(self._place, self._make, number, self.num)

    def close(self) -> None:
        """As `Keepers.close`."""
        for actor in self._actors:
            with suppress(Exception):
                ray.kill(actor)


class _RayKeeper(Keeper):
    """A keeper in a worker of Ray."""

    def __init__(self, place: "_Place", make: Make, number: int, num: int) -> None:
        try:
            place.enter()
        except Exception as error:
            self._made = False, error, ""
            return
        super().__init__(make, number, num)

    def process_id(self) -> int:
        """The id of this process."""
        return os.getpid()


def _connect(address: str, options: dict[str, Any]) -> None:
    """Connect to a cluster. Raises NoWorkers.

    A cluster that answers and gives up the connection is asked again, because it may have lost a node at this moment.
    """
    for num_tries in range(1, NUM_TRIES_MAX + 1):
        try:
            ray.init(address=address, **options)
            return
        except (ConnectionError, TimeoutError) as error:
            ray.shutdown()
            if num_tries == NUM_TRIES_MAX or not isinstance(error, ConnectionAbortedError):
                raise NoWorkers(f"no Ray answers at {address}: {error}".splitlines()[0]) from error
            time.sleep(CONNECT_PAUSE_SECONDS)


class _Place:
    """Where the units come from: a worker works in the same folder, and imports from the same ones."""

    def __init__(self, code: str, folder: str, path: tuple[str, ...]) -> None:
        self.code, self.folder, self.path = code, folder, path

    def enter(self) -> None:
        """Prepare this process. Raises AssertionError if it has another kvproof, OSError if it lacks the folder."""
        if code_digest() != self.code:
            raise AssertionError("the sources of its kvproof differ from those of the command; install the same there")
        if Path.cwd() != Path(self.folder):
            os.chdir(self.folder)
        sys.path += [one for one in self.path if one not in sys.path]


def _do(place: _Place, do: Callable[[Any], Any], unit: Any) -> Outcome:
    """Do one unit in a worker of Ray."""
    place.enter()
    # Ray cancels a task by an interrupt. It could come while the process of a subject answers, and the next unit would
    # get the rest of that answer; so a unit that nobody wants any more is done to its end.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return done(do, unit)
    finally:
        signal.signal(signal.SIGINT, before)
