"""What `--fix` accepts: the fields of the level of the subject."""

import pytest

from kvproof.check.oracle.level import MANAGER, SCHEDULER
from kvproof.check.runs.arguments import fixed_fields, require_fields_of
from kvproof.check.runs.errors import UsageError


def test_a_field_of_a_scheduler_can_be_fixed_for_a_scheduler_only() -> None:
    fixed = fixed_fields(["max_num_seqs=2", "block_size=1"])
    assert fixed == {"max_num_seqs": 2, "block_size": 1}
    require_fields_of(SCHEDULER.config, fixed)
    with pytest.raises(UsageError, match="--fix: a configuration has no field 'max_num_seqs'; it has block_size,"):
        require_fields_of(MANAGER.config, fixed)


def test_a_field_of_no_level_cannot_be_fixed() -> None:
    with pytest.raises(UsageError, match="--fix: a configuration has no field 'blocksize'"):
        fixed_fields(["blocksize=1"])
