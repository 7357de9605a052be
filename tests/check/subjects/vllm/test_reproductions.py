"""The scripts that show a fault with vLLM alone: they fail on the faulty release, and pass on the repaired one.

Here vLLM is what the adapters import of a release, so that the scripts run without its dependencies.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import download

pytestmark = pytest.mark.engine
SCRIPTS = Path(__file__).parents[4] / "examples" / "reproductions"
RUN = """
import os, runpy, sys
from kvproof.check.subjects.registry import find

find(sys.argv[1])()
sys.path[0] = os.path.dirname(sys.argv[2])  # as `python SCRIPT` has it: the scripts import what lies beside them
runpy.run_path(sys.argv[2])
"""


def exit_code(script: str, subject: str) -> int:
    download.add(f"vllm=={subject.partition('==')[2]}")
    command = [sys.executable, "-c", RUN, subject, str(SCRIPTS / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


@pytest.mark.parametrize(
    ("script", "faulty", "repaired"),
    [
        ("vllm_image_position_not_in_key.py", "vllm-v1==0.18.1", "vllm-v1==0.19.0"),
        ("vllm_key_behind_an_image_forgets_it.py", "vllm-v1==0.7.0", "vllm-v1==0.7.1"),
        ("vllm_salt_equals_an_adapters_name.py", "vllm-v1==0.30.0", "vllm-v1==0.31.0"),
        ("vllm_draft_drops_block_of_window.py", "vllm-v1==0.8.5", "vllm-v1==0.9.0"),
        ("vllm_local_attention_after_a_hit.py", "vllm-v1==0.10.0", "vllm-v1==0.10.1"),
        ("vllm_aborted_load_still_writes.py", "vllm-v1-scheduler==0.13.0", "vllm-v1-scheduler==0.16.0"),
        ("vllm_remembered_hit_of_evicted_block.py", "vllm-v0-scheduler==0.9.1", "vllm-v0-scheduler==0.9.2"),
        ("vllm_hit_without_its_beginning.py", "vllm-v0-scheduler==0.10.2", None),
        ("vllm_eviction_names_an_old_content.py", "vllm-v0==0.10.2", None),
        ("vllm_two_swap_ins_on_one_block.py", "vllm-v0-scheduler==0.10.2", None),
        ("vllm_more_prompts_in_part_than_allowed.py", "vllm-v0-scheduler==0.10.2", None),
        ("vllm_preempted_request_stays_in_the_step.py", "vllm-v1-scheduler==0.11.0", "vllm-v1-scheduler==0.11.1"),
        ("vllm_long_prompt_is_overtaken.py", "vllm-v1-scheduler==0.11.2", "vllm-v1-scheduler==0.12.0"),
        ("vllm_window_left_the_block_before.py", "vllm-v1==0.9.2", "vllm-v1==0.10.1"),
        ("vllm_named_prefix_keeps_the_pool.py", "vllm-v0==0.3.3", "vllm-v0==0.4.0"),
        ("vllm_offload_evicts_what_it_names.py", "vllm-offload==0.16.0", "vllm-offload==0.18.0"),
        ("vllm_offload_arc_raises_and_forgets.py", "vllm-offload==0.16.0", "vllm-offload==0.19.0"),
        ("vllm_offload_arc_refuses_what_fits.py", "vllm-offload==0.29.0", "vllm-offload==0.30.0"),
        ("vllm_draft_drops_two_blocks_of_hybrid_hit.py", "vllm-v1==0.19.1", "vllm-v1==0.20.0"),
        ("vllm_block_behind_an_image_has_two_keys.py", "vllm-v1==0.18.1", "vllm-v1==0.19.0"),
        ("vllm_loaded_request_is_never_reached.py", "vllm-v1-scheduler==0.17.1", "vllm-v1-scheduler==0.18.0"),
        ("vllm_loaded_request_behind_one_looked_up_again.py", "vllm-v1-scheduler==0.30.0", "vllm-v1-scheduler==0.31.0"),
        ("vllm_preempts_for_blocks_that_it_keeps.py", "vllm-v1-scheduler==0.29.0", "vllm-v1-scheduler==0.30.0"),
        ("vllm_send_frees_what_is_loaded.py", "vllm-v1-scheduler==0.33.0", None),
        ("vllm_window_hit_is_rounded_twice.py", "vllm-v1==0.33.0", None),
        ("vllm_lazy_offload_skips_what_is_evicted_next.py", "vllm-simple-offload==0.33.0", None),
        ("vllm_simple_offload_evicts_what_it_skipped.py", "vllm-simple-offload==0.33.0", None),
        ("vllm_offloading_resets_twice.py", "vllm-v1-scheduler==0.33.0", None),
        ("vllm_offloading_stores_what_is_not_computed.py", "vllm-v1-scheduler==0.29.0", "vllm-v1-scheduler==0.30.0"),
        ("vllm_offloading_loads_one_token_for_ever.py", "vllm-v1-scheduler==0.33.0", None),
        (
            "vllm_request_that_preempts_itself_ends_the_step.py",
            "vllm-v1-scheduler==0.32.0",
            "vllm-v1-scheduler==0.33.0",
        ),
        ("vllm_sparse_retention_loses_a_hit.py", "vllm-v1==0.33.0", None),
        ("vllm_states_need_a_block_more_than_is_counted.py", "vllm-v1-scheduler==0.33.0", None),
        ("vllm_failed_load_of_a_hybrid_model.py", "vllm-v1-scheduler==0.29.0", "vllm-v1-scheduler==0.30.0"),
        ("vllm_failed_load_while_a_step_is_under_way.py", "vllm-v1-scheduler==0.33.0", None),
        ("vllm_late_output_of_a_preempted_request.py", "vllm-v1-scheduler==0.26.0", "vllm-v1-scheduler==0.27.0"),
        ("vllm_loads_leave_no_block_for_drafts.py", "vllm-v1-scheduler==0.30.0", "vllm-v1-scheduler==0.31.0"),
        ("vllm_load_is_reported_twice.py", "vllm-v1-scheduler==0.33.0", None),
        ("vllm_image_that_is_computed_again_is_dropped.py", "vllm-v1-scheduler==0.27.1", "vllm-v1-scheduler==0.28.0"),
        ("vllm_event_says_removed_while_a_copy_is_there.py", "vllm-v1==0.33.0", None),
    ],
)
def test_a_script_fails_on_the_faulty_release_and_passes_on_the_repaired_one(
    script: str, faulty: str, repaired: str | None
) -> None:
    assert exit_code(script, faulty) == 1
    assert repaired is None or exit_code(script, repaired) == 0
