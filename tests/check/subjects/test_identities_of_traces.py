"""The finding of a saved run of an engine keeps its identity when the run has a request more, and its former name."""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from kvproof.check.counterexample.store import load
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.isolation.remote_subject import RemoteFactory
from kvproof.check.oracle.level import level_of_config
from kvproof.check.oracle.replay import Counterexample, finding_of
from kvproof.check.protocol.manager import Config
from kvproof.check.subjects.loading import download
from kvproof.check.subjects.registry import engine_of
from kvproof.reports.identity import Identity
from kvproof.spec.trace import Operation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
FOLDER = Path(__file__).parents[3] / "examples" / "traces"
TRACES = sorted(FOLDER.glob("*.json"))
FURTHER: dict[str, Operation] = {  # of a request of which nothing more is asked; a pool has no requests
    "manager": ("new", 97, (970,), (0,), (None, 0, None), ()),
    "store": ("look_up", 97, (97,)),
}


@contextmanager
def factory_of(subject: str) -> Iterator[RemoteFactory]:
    """A factory of a release, which is downloaded if it is not there."""
    download.add(f"{engine_of(subject)}=={subject.partition('==')[2]}")
    factory = RemoteFactory(subject)
    try:
        yield factory
    finally:
        factory.close()


def counterexample(factory: RemoteFactory, config: Config, operations: list[Operation]) -> Counterexample:
    """The run, cut where it ends in a finding."""
    finding = finding_of(factory(), config, operations)
    assert finding is not None
    return Counterexample(config, operations, finding)


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_a_saved_run_with_a_request_more_shows_the_same_fault(path: Path) -> None:
    trace = load(path)
    config, operations = config_of(trace, path), operations_of(trace, path)
    with factory_of(trace.subject) as factory:
        found = counterexample(factory, config, operations).identity
        assert found.property == trace.property
        assert found.is_covered_by(Identity(trace.property, found.former))
        assert found.is_covered_by(Identity(trace.property, f"{found.former.partition(':')[0]}: *"), fnmatchcase)
        if (further := FURTHER.get(level_of_config(config).name)) is not None:
            again = counterexample(factory, config, [further, *operations]).identity
            assert (again.property, again.signature) == (found.property, found.signature)


def identity_of(subject: str, config: Config, operations: list[Operation]) -> Identity:
    """The identity of what a run of a release finds."""
    with factory_of(subject) as factory:
        return counterexample(factory, config, operations).identity


def test_the_late_writers_of_two_releases_are_two_faults() -> None:
    names = "lmcache-a-late-writer-ends-a-write-after-an-eviction", "lmcache-a-late-writer-ends-the-write-of-another"
    paths = [FOLDER / f"{name}.json" for name in names]
    traces = [(load(path), path) for path in paths]
    one, other = (
        identity_of(trace.subject, config_of(trace, path), operations_of(trace, path)) for trace, path in traces
    )
    assert [trace.subject for trace, _ in traces] == ["lmcache-l1==0.5.5", "lmcache-l1==0.5.6"]
    assert (one.property, one.former) == (other.property, other.former)
    assert not one.is_covered_by(other)
    assert not other.is_covered_by(one)


def test_a_swap_in_without_the_next_token_is_another_fault_than_that_of_the_window() -> None:
    running: list[Operation] = [("new", 1, (1,), (0,), (None, 0, None), ()), ("admit", 1, 1), ("run", 0)]
    grown: list[Operation] = [("sample", 1, (0,)), ("swap_out", 1), ("run", 0), ("swap_in", 1)]
    swapped = Config(block_size=1, num_gpu_blocks=1, num_host_blocks=1)
    next_token = identity_of("vllm-v0==0.6.2", swapped, [*running, *grown])
    windowed, prompt = Config(block_size=3, num_gpu_blocks=2, window=1), ("new", 1, (1,), (0,) * 3, (None, 0, None), ())
    run: list[Operation] = [prompt, *running[1:], ("sample", 1, (0,)), ("append", 1)]
    window = identity_of("vllm-v0==0.6.2", windowed, run)
    assert next_token.property == window.property == "admission-sound"
    assert window == identity_of("vllm-v0==0.6.3.post1", windowed, run)
    assert not next_token.is_covered_by(window)
    assert not window.is_covered_by(next_token)
