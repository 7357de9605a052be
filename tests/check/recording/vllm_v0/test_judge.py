"""Faults of one line each, planted in the built-in manager under its scheduler: each recording diverges where the fault
first shows, and the property is the one that it breaks."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kvproof.audit.faults.edits import Edit, Fault
from kvproof.audit.faults.planting import in_memory
from kvproof.check.recording.validate import validate
from kvproof.impl.scheduler import PreemptionMode

Plant = Callable[[str, str, str, str], AbstractContextManager[None]]
Serve = Callable[..., Path]

MANAGER, OF_MANAGER = "kvproof.impl.block_manager", "SelfAttnBlockSpaceManager."
BLOCKS, CACHE, GROWTH = "kvproof.impl.device_blocks", "kvproof.impl.cached_blocks", "kvproof.impl.growth"
STATE, SWAPPING = "kvproof.impl.manager_state", "kvproof.impl.swapping"
NAIVE: dict[str, Any] = {}
CACHING, WINDOW, POOL = {"enable_caching": True}, {"sliding_window": 6}, {"shows_pool": True}
SWAP = {"preemption": PreemptionMode.SWAP}


def fault(
    name: str,
    module: str,
    function: str,
    line: str,
    replacement: str,
    options: dict[str, Any],
    property: str,
    call: str,
) -> Fault:
    """The fault with options that show it, the property that names it, and the call at which it does."""
    edit = Edit(function, line, replacement, f"impl/{module.replace('.', '/')}.py")
    return Fault(name, (edit,), found_by=(property,), settings={"options": options, "call": call})


FAULTS = [
    fault(
        "a block is leaked when a sequence ends",
        MANAGER,
        f"{OF_MANAGER}_give_up",
        "release(table.held_ids())",
        "release(table.held_ids()[:-1])",
        NAIVE,
        "conservation",
        "free",
    ),
    fault(
        "every block is freed twice",
        MANAGER,
        f"{OF_MANAGER}_give_up",
        "release(table.held_ids())",
        "release(table.held_ids() * 2)",
        NAIVE,
        "conservation",
        "free",
    ),
    fault(
        "every block is freed twice, and the pool is shown",
        MANAGER,
        f"{OF_MANAGER}_give_up",
        "release(table.held_ids())",
        "release(table.held_ids() * 2)",
        POOL,
        "refcount-exact",
        "free",
    ),
    fault(
        "a fork forgets the last block",
        MANAGER,
        f"{OF_MANAGER}_fork_table",
        "table.held_ids()",
        "table.held_ids()[:-1]",
        NAIVE,
        "cow-copied",
        "append_slots",
    ),
    fault(
        "a block is free while one reference is left",
        BLOCKS,
        "DeviceBlocks.release",
        "if not left:",
        "if left < 2:",
        NAIVE,
        "conservation",
        "free",
    ),
    fault(
        "no copy-on-write",
        GROWTH,
        "Growth.append_within_block",
        "if refcount > 1:",
        "if False:",
        NAIVE,
        "cow-copied",
        "append_slots",
    ),
    fault(
        "the copy goes the other way",
        GROWTH,
        "Growth.append_within_block",
        "pairs.append((source, target))",
        "pairs.append((target, source))",
        NAIVE,
        "cow-copied",
        "append_slots",
    ),
    fault(
        "what an exchange gives up is kept",
        GROWTH,
        "Growth.append",
        "blocks.release(given_up)",
        "pass",
        CACHING,
        "conservation",
        "append_slots",
    ),
    fault(
        "a block that is hit stays in the evictor",
        CACHE,
        "CachedBlocks.pin",
        "self.evictor.remove(block_id)",
        "pass",
        CACHING,
        "conservation",
        "allocate",
    ),
    fault(
        "a look-up finds one block too many",
        STATE,
        "ManagerState.get_num_cached_tokens",
        "return ",
        "return self.block_size + ",
        CACHING,
        "hit-computed",
        "allocate",
    ),
    fault(
        "the pairs of a swap are not relative to the host",
        MANAGER,
        f"{OF_MANAGER}swap_out",
        "target - base",
        "target",
        SWAP,
        "swap-mapping",
        "swap_out",
    ),
    fault(
        "a swap names another target",
        MANAGER,
        f"{OF_MANAGER}swap_in",
        "[(source - base, target)",
        "[(source - base, target ^ 1)",
        SWAP,
        "swap-mapping",
        "swap_in",
    ),
    fault(
        "a swap keeps a block behind",
        SWAPPING,
        "move",
        "source.release(held)",
        "source.release(held[1:])",
        SWAP,
        "conservation",
        "swap_out",
    ),
    fault(
        "the watermark is forgotten",
        MANAGER,
        f"{OF_MANAGER}can_allocate",
        "self.watermark_blocks",
        "0",
        NAIVE,
        "admission-sound",
        "can_allocate",
    ),
    fault(
        "an append is promised one block that is not there",
        MANAGER,
        f"{OF_MANAGER}can_append_slots",
        "<= self._gpu.num_free",
        "<= self._gpu.num_free + 1",
        NAIVE,
        "admission-sound",
        "append_slots",
    ),
    fault(
        "the window leaves a block too early",
        GROWTH,
        "Growth.first_kept",
        "- self.max_block_sliding_window",
        "- self.max_block_sliding_window + 2",
        WINDOW,
        "window-kept",
        "append_slots",
    ),
    fault(
        "the window leaves a block too late",
        GROWTH,
        "Growth.first_kept",
        "- self.max_block_sliding_window",
        "- self.max_block_sliding_window - 1",
        WINDOW,
        "window-kept",
        "append_slots",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_planted_fault_diverges_at_its_line(fault: Fault, serve: Serve) -> None:
    with in_memory(fault.plant[0]):
        path = serve(1, may_raise=True, **fault.settings["options"])
    done = validate(path)
    assert done.finding is not None
    call = json.loads(path.read_text().splitlines()[done.line - 1])["call"]
    assert ((done.finding.property,), call) == (fault.found_by, fault.settings["call"])
    assert done.last[-1][0] == done.line


def test_kv_that_was_not_computed_is_noticed_when_its_step_is_over(plant: Plant, serve: Serve) -> None:
    line, replacement = "+ token_chunk_size", "+ token_chunk_size + self.block_size"
    with plant(STATE, "ManagerState.mark_blocks_as_computed", line, replacement):
        found = [validate(serve(seed, **CACHING)).finding for seed in range(1, 12)]
    assert {one.property for one in found if one} == {"hit-computed"}


@pytest.mark.parametrize(
    ("options", "more", "said"),
    [
        (CACHING, 1, "a hit counts the tokens of whole blocks, of {size} tokens each"),
        (NAIVE, 1, "a hit counts the tokens of whole blocks, of {size} tokens each"),
        (NAIVE, 4, "a look-up says that {size} tokens are cached, and the manager has no prefix cache"),
    ],
)
def test_a_look_up_that_lets_the_engine_compute_too_little_is_found(
    serve: Serve, tmp_path: Path, options: dict[str, Any], more: int, said: str
) -> None:
    path = serve(3, 40, **options)
    header, *calls = [json.loads(line) for line in path.read_text().splitlines()]
    prompts = {seq["seq"]: seq["tokens"] for call in calls if call["call"] == "allocate" for seq in call["seqs"]}
    look_up = next(
        call
        for call in calls
        if call["call"] == "get_num_cached_tokens" and len(prompts[call["seqs"][0]["seq"]]) >= call["answer"] + more
    )
    look_up["answer"] += more
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *calls)))
    found = validate(path).finding
    assert found is not None
    assert (found.property, said.format(size=header["block_size"]) in found.text) == ("hit-computed", True), found.text
