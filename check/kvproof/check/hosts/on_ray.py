"""Workers that are processes of a Ray cluster, which is started on this machine if no address is given.

Every unit is a Ray task. Ray starts a task again whose worker or node is lost; what Ray gives up is submitted again
here. A worker uses the sources of a subject that it has, if they are those of this process; otherwise it takes them
from Ray's store of objects, where this process puts them once. A node whose worker lacks what a unit needs, such as
the same kvproof or a package, is given no more units of this need, and the unit is done on another node.
"""

import os
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kvproof.check.hosts.ray_cluster import connect, ray, start
from kvproof.check.hosts.worker_process import Actor
from kvproof.check.hosts.workers import (
    NUM_TRIES_MAX,
    USUAL,
    Handling,
    Lack,
    Lacks,
    Lost,
    Make,
    Outcome,
    Request,
    Shipping,
    Unavailable,
    UnitLost,
    WorkerLacks,
    WorkerLost,
    code_digest,
    done,
    lack_in,
    need_of,
    results_in,
    value_of,
)

NUM_AHEAD, NUM_AHEAD_MIN = 4, 16  # units for each processor, submitted before the result of the oldest one is there
ACTOR = "a search of the specification"  # what an actor is needed for


class RayWorkers:
    """The workers of a Ray cluster. address: ray://HOST:PORT; None starts a cluster on this machine.

    shipping: for what units need; without it a node has what it needs, or lacks it.

    Raises NoWorkers if there is no Ray at the address.
    """

    def __init__(self, address: str | None = None, shipping: Shipping | None = None) -> None:
        self.name = address or "ray"
        self._ending = ExitStack()
        try:
            if address is None:
                start(self._ending)
            else:
                connect(address)
        except BaseException:
            self._ending.close()
            raise
        self._ending.callback(ray.shutdown)
        self._task = ray.remote(max_retries=NUM_TRIES_MAX - 1)(_doing())
        self._place = _Place(code_digest(), os.getcwd(), tuple(sys.path))
        self._shipping = None if address is None else shipping  # a Ray on this machine needs none
        self._lacks = Lacks(lambda text: print(f"kvproof: {text}", file=sys.stderr, flush=True))
        self._shipped: dict[str, tuple[Any, list[Any]]] = {}  # by need, with where Ray has the archive

    def results(
        self,
        do: Callable[[Any], Any],
        units: Iterable[Any],
        handling: Handling = USUAL,
        meanwhile: Iterable[object] = (),
    ) -> Generator[Any, None, None]:
        """As `Workers.results`; always in the order of the units, and those of one unit arrive together."""
        answers = self._answers(do, iter(units), handling, meanwhile)
        next(answers)
        return answers

    def prepare(self, do: Callable[[Any], Any], unit: Any) -> None:
        """As `Workers.prepare`: Ray starts its workers itself, and it does not say which of them do not work yet."""

    def _answers(
        self, do: Callable[[Any], Any], source: Iterator[Any], handling: Handling, meanwhile: Iterable[object]
    ) -> Generator[Any, None, None]:
        """Yield None when the first units have begun, and then the results of each unit."""
        begun, steps = deque[_Task](), iter(meanwhile)  # in the order of their units
        num_ahead = max(NUM_AHEAD_MIN, NUM_AHEAD * int(ray.cluster_resources().get("CPU", 1)))

        def begin() -> None:
            for unit in islice(source, max(0, num_ahead - len(begun))):
                begun.append(self._begun(do, unit))
            if len(begun) < num_ahead:  # the last unit is drawn
                deque(steps, maxlen=0)

        try:
            begin()
            yield None
            while begun:
                outcome = self._outcome(begun[0], handling)
                begun.popleft()
                yield from results_in(outcome)
                begin()
        finally:
            for task in begun:
                with suppress(Exception):
                    ray.cancel(task.reference, force=False)

    def _begun(self, do: Callable[[Any], Any], unit: Any) -> "_Task":
        need = need_of(unit)
        sources, archive = self._sources_for(need)
        task = _Task(unit, need, ray.cloudpickle.dumps((self._place, do, unit, sources, self._shipping)), archive)
        self._submit(task)
        return task

    def _submit(self, task: "_Task") -> None:
        options = _elsewhere(self._lacks.machines(task.need))
        task.reference = self._task.options(**options).remote(self._place.code, task.data, task.archive)

    def _sources_for(self, need: str) -> tuple[Any, list[Any]]:
        """The sources of a subject, and where Ray has them; each is sent once."""
        if self._shipping is None or not need:
            return None, []
        if need not in self._shipped:
            sources, place = self._shipping.sources_of(need), self._shipping.place_of(need)
            archive = [] if place is None else [ray.put(self._shipping.packed(place))]
            self._shipped[need] = sources, archive
        return self._shipped[need]

    def _outcome(self, task: "_Task", handling: Handling) -> Outcome:
        num_lost = 0
        while True:
            try:
                machine, outcome = ray.get(task.reference, timeout=handling.seconds)
            except ray.exceptions.RayTaskError as error:  # what the task raised outside the unit
                raise WorkerLost(f"a worker of {self.name} cannot do units of kvproof: {error}") from error
            except ray.exceptions.RayError as error:
                num_lost += 1
                if isinstance(error, TimeoutError):
                    with suppress(ray.exceptions.RayError):
                        ray.cancel(task.reference, force=True)
                if num_lost == NUM_TRIES_MAX and handling.is_loss_a_result:
                    return True, UnitLost(str(error), is_next=False), ""
                if num_lost == NUM_TRIES_MAX:
                    text = f"{NUM_TRIES_MAX} times the workers of a unit were lost: {error}: {task.unit}"
                    raise WorkerLost(text) from error
            else:
                if isinstance(outcome, str):
                    outcome = False, WorkerLacks(outcome), ""
                if isinstance(outcome[1], Unavailable) and outcome[1].is_busy and num_lost < NUM_TRIES_MAX - 1:
                    num_lost += 1
                elif (lack := lack_in(outcome, task.need)) is None:
                    return outcome  # type: ignore[no-any-return]
                else:
                    self._lacks.add(machine, lack)
                    if _machines() <= set(self._lacks.machines(task.need)):
                        return outcome  # type: ignore[no-any-return]
            self._submit(task)

    def actors(self, make: Make) -> "RayActors":
        return RayActors(self._place, max(1, int(ray.cluster_resources().get("CPU", 1))), make, self._lacks)

    def close(self) -> None:
        """Leave the cluster, and end it if this process started it."""
        self._ending.close()


@dataclass
class _Task:
    """A unit that was submitted. data: what its worker reads. archive: where Ray has the sources."""

    unit: Any
    need: str
    data: bytes
    archive: list[Any]
    reference: Any = None


def _machines() -> set[str]:
    """The nodes of the cluster that have processors."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}


def _elsewhere(machines: list[str]) -> dict[str, Any]:
    """The options of a task or actor that must not run on these nodes."""
    return {"label_selector": {"ray.io/node-id": f"!in({','.join(machines)})"}} if machines else {}


class RayActors:
    """Actors that are actors of a Ray cluster, each on a processor of its own, on as many nodes as there are.

    An actor that cannot be made on its node is made on another one, beside those that are there. Raises what it raised
    if no node is left.
    """

    def __init__(self, place: "_Place", num: int, make: Make, lacks: Lacks) -> None:
        self.num, self._place, self._make, self._lacks = num, place, make, lacks
        self._actor = ray.remote(_RayActor)
        self._actors = [self._started(number) for number in range(num)]
        for number in range(num):
            self._require(number)

    @property
    def process_ids(self) -> list[int]:
        return [ray.get(actor.process_id.remote()) for actor in self._actors]

    def answers(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        references = {n: self._actors[n].answer.remote(*request) for n, request in requests.items()}
        found: dict[int, Any] = {}
        for number, reference in references.items():
            try:
                found[number] = value_of(ray.get(reference))
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
                found[number] = Lost.LOST
        return found

    def replace(self, number: int) -> None:
        self._kill(number)
        self._actors[number] = self._started(number)
        self._require(number)

    def _started(self, number: int) -> Any:
        avoided = self._lacks.machines(ACTOR)
        options = {"num_cpus": 0, **_elsewhere(avoided)} if avoided else {"num_cpus": 1}
        actor = self._actor.options(scheduling_strategy="SPREAD", **options)
        return actor.remote(self._place, self._make, number, self.num)

    def _require(self, number: int) -> None:
        """Start an actor again on another node until it has its object. Raises what the last node raised."""
        with suppress(ray.exceptions.RayActorError):  # it is lost, as it may be later
            while (failed := ray.get(self._actors[number].failure.remote())) is not None:
                machine, outcome = failed
                self._lacks.add(machine, Lack(str(outcome[1]), ACTOR))
                if _machines() <= set(self._lacks.machines(ACTOR)):
                    value_of(outcome)
                self._kill(number)
                self._actors[number] = self._started(number)

    def _kill(self, number: int) -> None:
        with suppress(ray.exceptions.RayError):
            ray.kill(self._actors[number])

    def close(self) -> None:
        for actor in self._actors:
            with suppress(Exception):
                ray.kill(actor)


class _RayActor(Actor):
    """An actor in a worker of Ray."""

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

    def failure(self) -> tuple[str, Outcome] | None:
        """The node, and why the object cannot be made there; None if it was made."""
        return None if self._made[0] else (ray.get_runtime_context().get_node_id(), self._made)


class _Place:
    """Where the units come from: a worker works in the same folder, if it has it, and imports from the same ones."""

    def __init__(self, code: str, folder: str, path: tuple[str, ...]) -> None:
        self.code, self.folder, self.path = code, folder, path

    def enter(self) -> None:
        """Prepare this process. Raises WorkerLacks if it has another kvproof."""
        require_code(self.code)
        if Path.cwd() != Path(self.folder):
            with suppress(OSError):
                os.chdir(self.folder)
        sys.path += [one for one in self.path if one not in sys.path]


def require_code(code: str) -> None:
    """Raises WorkerLacks if this process has another kvproof than the one with this digest."""
    if code_digest() != code:
        raise WorkerLacks("the sources of its kvproof differ from those of the command; install the same there")


def _doing() -> Callable[[str, bytes, list[Any]], tuple[str, Outcome]]:
    """The function of a Ray task. Ray sends it by value, since it is local, so it runs where there is no kvproof."""

    def do_unit(code: str, data: bytes, archive: list[Any]) -> tuple[str, Any]:
        import ray

        machine = ray.get_runtime_context().get_node_id()
        try:
            from kvproof.check.hosts.on_ray import outcome_of
        except Exception as error:
            return machine, f"it cannot import kvproof: {type(error).__name__}: {error}"
        return machine, outcome_of(code, data, archive)

    return do_unit


def outcome_of(code: str, data: bytes, archive: list[Any]) -> Outcome:
    """Do one unit in a worker of Ray. archive: where Ray has the sources of its subject."""
    # Ray cancels a task by an interrupt. It could come while the process of a subject answers, and the next unit would
    # get the rest of that answer; so a unit that nobody wants any more is done to its end.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return done(lambda _: _done_with_sources(code, data, archive), None)
    finally:
        signal.signal(signal.SIGINT, before)


def _done_with_sources(code: str, data: bytes, archive: list[Any]) -> Any:
    require_code(code)
    place, do, unit, sources, shipping = pickle.loads(data)
    place.enter()
    if shipping is None:
        return do(unit)
    with shipping.at_hand(sources, lambda: bytes(ray.get(archive[0]))):
        return do(unit)
