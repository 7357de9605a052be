"""Ray as workers: the same findings and counts as processes of this machine, also when nodes are killed."""

import json
import operator
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.check.forgetful import FORGETFUL

from kvproof.check.hosts.workers import Handling, WorkerLost

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # Ray leaves logs open
]

NUM_RUNS = 6
MAIN = "from kvproof.check.cli import main; main()"
SECONDS_MAX = 900.0
BROKEN = f"{Path(__file__).parents[3] / 'examples' / 'forty_lines_broken.py'}:Adapter"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_USAGE_STATS_ENABLED": "0"}


# What runs here sees the file of the subject in a folder that is empty for every other process.
ALONE = 'mount -t tmpfs tmpfs "$0" && cp head/*.* "$0" && cd "$0" && exec "$@"'
PLAN = '[[search]]\nsubjects = ["adapter.py:Forgetful"]\nseeds = [1]\nefforts = [20_000]\n'


def hunt(folder: Path, workers: str, effort: str = "quick", **variables: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", MAIN, "hunt", "--subject", BROKEN, "--seed", "1"]
    options = ["--effort", effort, "--workers", workers, "--out", "out", "--json", "result.json"]
    folder.mkdir()
    environment = {**ENVIRONMENT, "HOME": str(folder / "home"), **variables}
    return subprocess.Popen([*command, *options], cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def result_of(hunting: "subprocess.Popen[bytes]", folder: Path) -> Any:
    """The result without times and the names of the workers."""
    assert hunting.wait(SECONDS_MAX) == 1
    found = json.loads((folder / "result.json").read_bytes())
    found["run"] = {name: found["run"][name] for name in ("command", "subject", "seed", "effort", "is_complete")}
    for check in found["checks"]:
        del check["seconds"]
    return found


@pytest.fixture
def temporary() -> Iterator[str]:
    """A folder for temporary files; its name is short, since those of sockets must be."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def left_over(folder: str) -> list[str]:
    """The processes that stay of a command with this folder.

    One that ends by itself has ten seconds for it, as the tracker of multiprocessing, which sees its process end.
    """
    deadline = time.monotonic() + 10
    while (found := processes_with(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def processes_with(folder: str) -> list[str]:
    """The processes of which a variable names this folder: what a command with it has started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def test_a_local_ray_finds_and_counts_what_one_process_and_two_do_and_leaves_nothing(
    tmp_path: Path, temporary: str
) -> None:
    hunts = {workers: hunt(tmp_path / workers, workers, TMPDIR=temporary) for workers in ("1", "2", "ray")}
    one, *others = (result_of(hunting, tmp_path / workers) for workers, hunting in hunts.items())
    assert others == [one, one]
    assert left_over(temporary) == []
    assert list(Path(temporary).iterdir()) == []
    assert not (tmp_path / "ray" / "home" / ".ray").exists()  # nor a token


@pytest.mark.parametrize(
    "command", [["explore", "--scope", "rules-lookahead"], ["prove", "--only", "mapping/*", "--no-cache"]]
)
def test_a_local_ray_divides_a_search_and_proofs(command: list[str], tmp_path: Path, temporary: str) -> None:
    environment = {**ENVIRONMENT, "TMPDIR": temporary}

    def checks(workers: str) -> list[Any]:
        options = [*command, "--workers", workers, "--json", str(tmp_path / workers)]
        subprocess.run([sys.executable, "-c", MAIN, *options], cwd=tmp_path, env=environment, timeout=SECONDS_MAX)
        found = json.loads((tmp_path / workers).read_bytes())["checks"]
        return sorted((one["id"], one["verdict"], one["counts"]) for one in found)

    assert checks("ray") == checks("2")
    assert left_over(temporary) == []


def test_a_part_whose_process_is_killed_is_made_again() -> None:
    from kvproof.check.hosts.on_ray import RayActors, RayWorkers
    from kvproof.check.hosts.workers import Make
    from kvproof.check.hunting.partitioned_search import PartitionedReader
    from kvproof.check.protocol.scopes import SCOPES
    from kvproof.check.search.exhaustive.specification import explore_specification

    class Killing(RayWorkers):
        """Kills the process of the last actor after it was made."""

        def actors(self, make: Make) -> RayActors:
            made = super().actors(make)
            os.kill(made.process_ids[-1], signal.SIGKILL)
            return made

    workers = Killing()
    try:
        found = PartitionedReader(workers, 100_000)(SCOPES["tables-4x3x6"], seconds=600)
    finally:
        workers.close()
    expected = explore_specification(SCOPES["tables-4x3x6"], seconds=600)
    assert (found.num_states, found.num_operations, found.depth) == (358, 1581, 11)
    assert found.coverage == expected.coverage


def test_a_unit_that_hangs_is_done_again_and_a_worker_with_other_sources_does_none(tmp_path: Path) -> None:
    from kvproof.check.hosts import on_ray
    from kvproof.check.hosts.ray_cluster import TOKEN, TOKEN_MODE

    before = [os.environ.get(name) for name in (TOKEN, TOKEN_MODE)]
    workers = on_ray.RayWorkers()
    try:
        assert list(workers.results(operator.neg, [1, 2])) == [-1, -2]
        unit = f"test -e {tmp_path}/begun || {{ touch {tmp_path}/begun; sleep 60; }}"
        began = time.monotonic()
        assert list(workers.results(os.system, [unit], Handling(seconds=3.0))) == [0]
        assert time.monotonic() - began < 50
        workers._place.code = "others"
        with pytest.raises(WorkerLost, match="the sources of its kvproof differ from those of the command"):
            list(workers.results(operator.neg, [1]))
    finally:
        workers.close()
    assert [os.environ.get(name) for name in (TOKEN, TOKEN_MODE)] == before


def test_an_address_without_a_ray_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert hunt(tmp_path / "hunt", "ray://127.0.0.1:9").wait(SECONDS_MAX) == 2
    assert "kvproof: no Ray answers at ray://127.0.0.1:9: " in capfd.readouterr().err


def test_a_connection_that_fails_is_explained_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvproof.check.hosts.ray_cluster import TOKEN_MODE, reason_of

    failed = ConnectionError("Initialization failure from server:\nTraceback\nValueError: no node is alive\n")
    assert reason_of(failed) == "ValueError: no node is alive"
    monkeypatch.delenv(TOKEN_MODE, raising=False)
    silent = ConnectionError("ray client connection timeout")
    assert "if it asks for a token, set RAY_AUTH_MODE=token" in reason_of(silent)
    monkeypatch.setenv(TOKEN_MODE, "token")
    assert reason_of(silent) == "ray client connection timeout"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("expected") / "out"
    return result_of(hunt(folder, "2"), folder)


@contextmanager
def cluster(*environments: dict[str, str]) -> Iterator[tuple[Any, int]]:
    """A cluster on this machine, and the port for clients: a head without processors, and two nodes with one each.

    environments: further variables of the nodes.
    """
    import_module("kvproof.check.hosts.on_ray")  # it sets variables that Ray reads when it is imported
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "ray_client_server_port": port})
    try:
        for environment in environments or ({}, {}):
            nodes.add_node(num_cpus=1, env_vars=environment)
        yield nodes, port
    finally:
        nodes.shutdown()


def test_sources_are_sent_to_nodes_and_a_node_that_lacks_a_package_gets_no_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kvproof.check.hosts.on_ray import RayWorkers
    from kvproof.check.hunting.unit import Judged, WalkUnit, walk_unit
    from kvproof.check.isolation.messages import unpack
    from kvproof.check.subjects import UnknownSubject
    from kvproof.check.subjects.loading.shipping import SHIPPING

    monkeypatch.chdir(tmp_path)
    adapter, caches = (Path(__file__).parents[3] / "examples" / "forty_lines.py").read_text(), ("one", "two")
    for name, node in (("some.py", "two"), ("all.py", "")):
        test = f"os.environ['KVPROOF_CACHE'].endswith({node!r})"
        Path(name).write_text(f"import os\nif {test}: raise ImportError('no widget')\n{adapter}")
    with cluster(*({"KVPROOF_CACHE": str(tmp_path / name)} for name in caches)) as (_, port):
        monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "head"))
        workers = RayWorkers(f"ray://127.0.0.1:{port}", SHIPPING)
        try:
            for name in ("some.py", "all.py"):
                workers._sources_for(f"{name}:Adapter")
                Path(name).unlink()  # so no node has it
            units = [WalkUnit(Judged("some.py:Adapter", None), 1, index, 200) for index in range(4)]
            done = list(workers.results(walk_unit, units))
            with pytest.raises(UnknownSubject, match="no widget"):
                list(workers.results(walk_unit, [WalkUnit(Judged("all.py:Adapter", None), 1, 0, 200)]))
            assert list(workers.results(operator.neg, [1, 2])) == [-1, -2]
        finally:
            workers.close()
    assert [unpack(one.answer).num_operations for one in done] == [200] * 4
    said = capsys.readouterr().err
    assert [said.count(f"is given no more units of {name}:Adapter: ") for name in ("some.py", "all.py")] == [1, 2]
    unpacked = [sorted(file.name for file in tmp_path.glob(f"{name}/.shipped/*/*.py")) for name in caches]
    assert unpacked == [["all.py", "some.py"]] * 2


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no folder can be hidden from other processes here")
def test_a_node_whose_disk_is_full_gets_no_unit_and_nothing_is_lost_or_counted_twice(
    small_disk: Path, tmp_path: Path
) -> None:
    head, private = tmp_path / "head", tmp_path / "private"
    head.mkdir()
    private.mkdir()
    (head / "adapter.py").write_text(f"{FORGETFUL}\n# {os.urandom(50_000).hex()}\n")  # it does not fit there
    (head / "plan.toml").write_text(PLAN)
    (small_disk / "ballast").write_bytes(bytes(40_000))
    full, empty = ({"KVPROOF_CACHE": str(one), "TMPDIR": str(one)} for one in (small_disk, tmp_path / "empty"))
    (tmp_path / "empty").mkdir()

    def table(name: str, workers: str, *place: str) -> tuple[Any, str]:
        """The table of a search, and what the command said of its nodes."""
        search = ["hunt", "--subject", "adapter.py:Forgetful", "--seed", "1", "--effort", "20000"]
        command = search if name == "hunt" else ["campaign", "plan.toml"]
        out = tmp_path / f"{name}-{workers.partition(':')[0]}"
        options = ["--workers", workers, "--out", str(out), "--json", str(out / "result.json")]
        out.mkdir()
        done = subprocess.run(
            [*place, sys.executable, "-c", MAIN, *command, *options],
            cwd=tmp_path if place else head,
            env=ENVIRONMENT,
            capture_output=True,
            timeout=SECONDS_MAX,
            text=True,
        )
        assert done.returncode == 1, done.stderr
        found = json.loads((out / "result.json").read_bytes())
        if name == "hunt":
            found = found["checks"]
            for check in found:
                del check["seconds"]
        return found, done.stderr

    with cluster(full, empty) as (_, port):
        for name in ("hunt", "campaign"):
            alone = ("unshare", "-m", "sh", "-c", ALONE, str(private))
            found, said = table(name, f"ray://127.0.0.1:{port}", *alone)
            assert re.fullmatch(r"kvproof: machine \w+ is given no more units: its disk is full: [^\n]+\n", said)
            assert (found, "") == table(name, "2")
    assert [file.name for file in small_disk.rglob("*") if file.is_file()] == ["ballast"]
    assert [file.name for file in tmp_path.glob("empty/.shipped/*/*.py")] == ["adapter.py"]


def test_a_node_without_a_compiler_holds_no_part_of_a_search_in_c(capsys: pytest.CaptureFixture[str]) -> None:
    from kvproof.check.hosts.on_ray import RayWorkers
    from kvproof.check.hunting.partitioned_search import PartitionedReader
    from kvproof.check.protocol.scopes import SCOPES
    from kvproof.check.search.exhaustive.specification import explore_specification
    from kvproof.spec.c_reader.library import NoLibrary

    scope, expected = SCOPES["tables-4x3x6"], explore_specification(SCOPES["tables-4x3x6"], seconds=600)
    for environments, can_search in (({"CC": "/no/compiler"}, {}), True), (({"CC": "/no/compiler"},) * 2, False):
        with cluster(*environments) as (_, port):
            workers = RayWorkers(f"ray://127.0.0.1:{port}")
            try:
                search = PartitionedReader(workers, 100_000, num_bytes_max=1 << 28)
                if can_search:
                    found = search(scope, seconds=600)
                    counts = found.num_states, found.num_operations, found.depth
                    assert counts == (expected.num_states, expected.num_operations, expected.depth)
                else:
                    with pytest.raises(NoLibrary, match="the compiler that CC names, /no/compiler, is not there"):
                        search(scope, seconds=600)
            finally:
                workers.close()
        lines = capsys.readouterr().err.splitlines()
        said = [line for line in lines if "is given no more units of" in line and "there is no C compiler" in line]
        assert len(said) == (1 if can_search else 2)


@pytest.mark.parametrize("seed", range(NUM_RUNS))
def test_a_hunt_whose_nodes_are_killed_finds_and_counts_the_same(tmp_path: Path, expected: Any, seed: int) -> None:
    draw = random.Random(seed)
    with cluster() as (nodes, port):
        hunting = hunt(tmp_path / "hunt", f"ray://127.0.0.1:{port}")
        time.sleep(draw.uniform(5.0, 25.0))
        for _ in range(draw.choice([1, 2])):
            nodes.remove_node(draw.choice(sorted(nodes.worker_nodes, key=id)), allow_graceful=False)
            nodes.add_node(num_cpus=1)
            time.sleep(draw.uniform(0.0, 5.0))
        assert result_of(hunting, tmp_path / "hunt") == expected
