"""The processes of the subjects of a unit end with the unit, and each subject has one."""

from tests.check.hunting.corpus.conftest import EXAMPLES

from kvproof.check.hunting.corpus.factories import factories
from kvproof.check.isolation.remote_subject import RemoteFactory

BAD = f"{EXAMPLES}/forty_lines_broken.py:Adapter"


def test_a_subject_has_one_process_which_ends_with_the_block() -> None:
    with factories() as makes:
        make = makes(BAD)
        assert isinstance(make, RemoteFactory)
        assert makes(BAD) is make
        process = make.server.server.process
        assert process.poll() is None
    assert process.poll() is not None


def test_a_subject_of_kvproof_has_no_process_to_end() -> None:
    with factories() as makes:
        assert not isinstance(makes("kvproof-pool"), RemoteFactory)
