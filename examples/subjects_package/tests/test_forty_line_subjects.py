"""The subjects of the package conform."""

from forty_line_subjects import Adapter

from kvproof.check import run_conformance


def test_the_manager_conforms() -> None:
    run_conformance(Adapter)
