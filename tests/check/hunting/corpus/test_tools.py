"""A tool hunts in a folder of its own, and says after how much work it has seen something."""

import sys
from pathlib import Path

import pytest
from tests.check.hunting.corpus.conftest import EXAMPLES

from kvproof.check.hunting.corpus.factories import factories
from kvproof.check.hunting.corpus.matching import broken
from kvproof.check.hunting.corpus.tools import NotHunted, Work, tool_of
from kvproof.check.isolation.factory import factory_for

BAD = f"{EXAMPLES}/forty_lines_broken.py:Adapter"
NAIVE = f"{sys.executable} {EXAMPLES}/naive_fuzzer.py"


def test_kvproof_sees_each_finding_once_with_the_operations_until_then_and_the_same_from_the_same_seed(
    tmp_path: Path,
) -> None:
    with factories() as makes:
        work = Work()
        seen = list(tool_of(None)(BAD, 1, "500", tmp_path / "a", work, makes))
        again = list(tool_of(None)(BAD, 1, "500", tmp_path / "b", Work(), makes))
        first = broken(seen[0].file, BAD, makes)
    assert len({one.file for one in seen}) == len(seen) > 0
    assert all(0 < one.num_operations <= work.num_operations for one in seen)
    assert [one.seconds for one in seen] == sorted(one.seconds for one in seen)
    assert work.num_operations >= 500
    assert first is not None
    assert first.key[0] == "refcount-exact"
    assert [(one.file.name, one.num_operations) for one in again] == [
        (one.file.name, one.num_operations) for one in seen
    ]


def test_what_cannot_be_made_is_not_hunted(tmp_path: Path) -> None:
    with pytest.raises(NotHunted, match="no-such"):
        list(tool_of(None)("no-such", 1, "500", tmp_path, Work(), factory_for))


def program(tmp_path: Path, text: str) -> str:
    (tmp_path / "tool.py").write_text(text)
    return f"{sys.executable} {tmp_path}/tool.py"


def test_a_program_gets_subject_seed_operations_and_folder(tmp_path: Path) -> None:
    command = program(tmp_path, f"import sys\nopen({str(tmp_path / 'got')!r}, 'w').write(' '.join(sys.argv[1:]))")
    work = Work()
    assert list(tool_of(command)("vllm-v1==0.30.0", 7, "quick", tmp_path / "out", work, factory_for)) == []
    assert (tmp_path / "got").read_text() == f"vllm-v1==0.30.0 7 50000 {tmp_path}/out"
    assert work.num_operations == 50_000


@pytest.mark.parametrize(
    ("text", "message"),
    [("import sys; sys.exit(2)", "ended with exit code 2"), ("raise SystemExit('x')", None)],
)
def test_a_program_that_ends_otherwise_has_hunted_nothing(tmp_path: Path, text: str, message: str | None) -> None:
    hunt = tool_of(program(tmp_path, text))("vllm-v1==0.30.0", 1, "500", tmp_path / "out", Work(), factory_for)
    if message is None:
        assert list(hunt) == []
        return
    with pytest.raises(NotHunted, match=message):
        list(hunt)


def test_a_program_that_is_not_there_has_hunted_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotHunted, match="no_such_program"):
        list(tool_of("no_such_program")("vllm-v1==0.30.0", 1, "500", tmp_path, Work(), factory_for))


def test_the_naive_fuzzer_notices_nothing_in_a_right_manager_and_a_crash_in_a_wrong_one(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "from kvproof.check.subjects.builtin.pool import OwnPool\n\n"
        "class Wrong(OwnPool):\n    def share(self, blocks):\n        raise RuntimeError('a crash')\n"
    )
    for subject, num in (("kvproof-pool", 0), (f"{tmp_path}/wrong.py:Wrong", 1)):
        folder = tmp_path / str(num)
        folder.mkdir()
        seen = list(tool_of(NAIVE)(subject, 1, "2000", folder, Work(), factory_for))
        assert len(seen) == num
        assert all(
            (run := broken(one.file, subject, factory_for)) is not None and run.key[0] == "total-calls" for one in seen
        )
