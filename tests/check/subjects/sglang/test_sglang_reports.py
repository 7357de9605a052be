"""Faults of SGLang that others reported: each script shows its fault in a bad release, and not in a repaired one."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
SCRIPTS = Path(__file__).parents[4] / "examples" / "reproductions"


def run(script: str, subject: str) -> subprocess.CompletedProcess[str]:
    """Run a script on what the adapter of a subject finds of a release."""
    download.add(f"sglang=={subject.partition('==')[2]}")
    command = [sys.executable, "-m", "kvproof.check.hunting.corpus.run_script", subject, str(SCRIPTS / script)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("script", "bad", "good"),
    [
        ("sglang_callers_key_is_the_id_of_an_adapter.py", "sglang==0.5.23", None),
        ("sglang_closed_session_keeps_its_states.py", "sglang==0.5.10.post1", "sglang==0.5.11"),
        ("sglang_full_batch_stays_full.py", "sglang==0.5.21", "sglang==0.5.22"),
        ("sglang_grouped_free_takes_the_new_window_slot.py", "sglang==0.5.18", "sglang==0.5.19"),
        ("sglang_prefetch_lands_below_what_the_host_lacks.py", "sglang==0.5.20", "sglang==0.5.21"),
        ("sglang_recovered_window_frees_locked_slots.py", "sglang==0.5.14", "sglang==0.5.15"),
        ("sglang_storage_error_ends_the_backup_thread.py", "sglang-hicache==0.5.21", "sglang-hicache==0.5.22"),
        ("sglang_tail_of_a_window_keeps_old_places.py", "sglang==0.5.12", "sglang==0.5.13"),
        ("sglang_unpublished_prompt_is_computed_again.py", "sglang==0.5.21", "sglang==0.5.22"),
    ],
)
def test_a_script_shows_the_fault_until_it_is_repaired(script: str, bad: str, good: str | None) -> None:
    done = run(script, bad)
    assert done.returncode == 1, done.stderr
    if good is not None:
        done = run(script, good)
        assert done.returncode == 0, done.stderr


ASKS_A_STUB = """
from on_sglang_modules import import_modules

import_modules([])
from sglang.srt.managers import schedule_batch

schedule_batch.Req
"""


def test_a_part_that_is_not_there_is_named_when_it_is_used(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\n{ASKS_A_STUB}")
    done = run(str(script), "sglang==0.5.23")
    assert done.returncode == 3
    assert done.stderr.endswith(
        "LookupError: SGLang uses sglang.srt.managers.schedule_batch.Req, which this script does not stand in for\n"
    )
