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
from kvproof.spec.trace import Operation

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
TRACES = sorted((Path(__file__).parents[3] / "examples" / "traces").glob("*.json"))
REFUTES_NOTHING = ("v0-reset-refused-reorders-the-free-list",)  # the order of free ids is no part of the state any more
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
    if path.stem in REFUTES_NOTHING:
        pytest.skip("it refutes nothing any more")
    trace = load(path)
    config, operations = config_of(trace, path), operations_of(trace, path)
    with factory_of(trace.subject) as factory:
        found = counterexample(factory, config, operations).identity
        assert found.property == trace.property
        assert found.is_covered_by(trace.property, found.former)
        assert found.is_covered_by(trace.property, f"{found.former.partition(':')[0]}: *", fnmatchcase)
        if (further := FURTHER.get(level_of_config(config).name)) is not None:
            again = counterexample(factory, config, [further, *operations]).identity
            assert (again.property, again.signature) == (found.property, found.signature)
