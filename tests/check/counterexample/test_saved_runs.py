"""A run that is saved is the run that is read, at every level; and its file is named by what is in it."""

from pathlib import Path

from hypothesis import given
from tests.check.drawn_runs import Run, cheaply, runs_of_any_level

from kvproof.check.counterexample.store import load, raw_trace, save_trace
from kvproof.check.counterexample.trace_schema import config_of, operations_of
from kvproof.check.oracle.replay import Counterexample
from kvproof.check.protocol.finding import Finding
from kvproof.reports.document import encode


def test_a_saved_run_is_read_as_it_was(tmp_path: Path) -> None:
    @cheaply(120)
    @given(runs_of_any_level())
    def is_read(run: Run) -> None:
        config, operations = run
        found = Counterexample(config, operations, Finding("refcount-exact", "$observed blocks", "fork", observed=3))
        trace = raw_trace("kvproof", found, "walker", 7, 1)
        path = save_trace(tmp_path, trace)
        read = load(path)
        assert (config_of(read, path), operations_of(read, path)) == (config, operations)
        assert type(config_of(read, path)) is type(config)
        assert encode(read) == encode(trace)
        assert save_trace(tmp_path, read) == path

    is_read()
