"""nano-vllm's adapters: on a small manager of the same interface; and on a checkout that KVPROOF_NANO_VLLM names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproof.check.subjects.loading import EngineError
from kvproof.check.subjects.nano_vllm import import_module

MANAGER = '''
from nanovllm.engine.sequence import Sequence


class Block:
    def __init__(self):
        self.ref_count, self.content = 0, None


class BlockManager:
    """Finds prefixes by their tokens; takes the free block that was freed first."""

    def __init__(self, num_blocks, block_size):
        self.size = block_size
        self.blocks = [Block() for _ in range(num_blocks)]
        self.found = {}
        self.free_block_ids = list(range(num_blocks))

    def _hits(self, seq):
        ids = []
        for index in range(seq.num_blocks - 1):
            block_id = self.found.get(tuple(seq.token_ids[: (index + 1) * self.size]))
            if block_id is None:
                break
            ids.append(block_id)
        return ids

    def _take(self):
        block_id = self.free_block_ids.pop(0)
        block = self.blocks[block_id]
        if self.found.get(block.content) == block_id:
            del self.found[block.content]
        block.ref_count, block.content = 1, None
        return block_id

    def can_allocate(self, seq):
        hits = self._hits(seq)
        needed = seq.num_blocks - sum(self.blocks[block_id].ref_count > 0 for block_id in hits)
        return len(hits) if needed <= len(self.free_block_ids) else -1

    def allocate(self, seq, num_cached_blocks):
        for block_id in self._hits(seq)[:num_cached_blocks]:
            if not self.blocks[block_id].ref_count:
                self.free_block_ids.remove(block_id)
            self.blocks[block_id].ref_count += 1
            seq.block_table.append(block_id)
        while len(seq.block_table) < seq.num_blocks:
            seq.block_table.append(self._take())
        seq.num_cached_tokens = num_cached_blocks * self.size

    def deallocate(self, seq):
        for block_id in reversed(seq.block_table):
            self.blocks[block_id].ref_count -= 1
            if not self.blocks[block_id].ref_count:
                self.free_block_ids.append(block_id)
        seq.num_cached_tokens = 0
        seq.block_table.clear()

    def can_append(self, seq):
        return len(seq) % self.size != 1 or bool(self.free_block_ids)

    def may_append(self, seq):
        if len(seq) % self.size == 1:
            seq.block_table.append(self._take())

    def hash_blocks(self, seq):
        until = seq.num_cached_tokens + seq.num_scheduled_tokens
        for index in range(seq.num_cached_tokens // self.size, until // self.size):
            block_id = seq.block_table[index]
            self.blocks[block_id].content = tuple(seq.token_ids[: (index + 1) * self.size])
            self.found[self.blocks[block_id].content] = block_id
'''

OLDER = '''
from nanovllm.engine.sequence import Sequence

NOTHING = -1


class Block:
    def __init__(self):
        self.ref_count, self.hash, self.token_ids = 0, NOTHING, []


class BlockManager:
    """The older interface: full blocks are found as soon as they are allocated, until their ids are taken again."""

    def __init__(self, num_blocks, block_size):
        self.size = block_size
        self.blocks = [Block() for _ in range(num_blocks)]
        self.hash_to_block_id = {}
        self.free_block_ids = list(range(num_blocks))

    def compute_hash(self, token_ids, before=NOTHING):
        return hash((before, *token_ids)) & 0xFFFFFFFF

    def can_allocate(self, seq):
        return seq.num_blocks <= len(self.free_block_ids)

    def allocate(self, seq):
        known, before = True, NOTHING
        for at in range(0, len(seq), self.size):
            tokens = seq.token_ids[at : at + self.size]
            before = self.compute_hash(tokens, before)
            found = self.hash_to_block_id.get(before) if len(tokens) == self.size else None
            known = known and found is not None and self.blocks[found].token_ids == tokens
            if known:
                self._hold(found)
                seq.num_cached_tokens += self.size
            else:
                found = self._take()
                if len(tokens) == self.size:
                    self._cache(found, before, tokens)
            seq.block_table.append(found)

    def deallocate(self, seq):
        for block_id in reversed(seq.block_table):
            self.blocks[block_id].ref_count -= 1
            if not self.blocks[block_id].ref_count:
                self.free_block_ids.append(block_id)
        seq.block_table.clear()

    def can_append(self, seq):
        return len(seq) % self.size != 1 or bool(self.free_block_ids)

    def may_append(self, seq):
        if len(seq) % self.size == 1:
            seq.block_table.append(self._take())
        elif len(seq) % self.size == 0:
            *earlier, last = seq.block_table
            before = self.blocks[earlier[-1]].hash if earlier else NOTHING
            tokens = seq.token_ids[-self.size :]
            self._cache(last, self.compute_hash(tokens, before), tokens)

    def _hold(self, block_id):
        if not self.blocks[block_id].ref_count:
            self.free_block_ids.remove(block_id)
        self.blocks[block_id].ref_count += 1

    def _take(self):
        block_id = self.free_block_ids[0]
        block = self.blocks[block_id]
        if self.hash_to_block_id.get(block.hash) == block_id:
            del self.hash_to_block_id[block.hash]
        block.hash, block.token_ids = NOTHING, []
        self._hold(block_id)
        return block_id

    def _cache(self, block_id, number, tokens):
        self.blocks[block_id].hash, self.blocks[block_id].token_ids = number, tokens
        self.hash_to_block_id[number] = block_id
'''

SEQUENCE = """
class Sequence:
    block_size = 256

    count = 0

    def __init__(self, token_ids, sampling_params=None):
        Sequence.count += 1
        self.seq_id, self.max_tokens = Sequence.count, getattr(sampling_params, "max_tokens", 0)
        self.token_ids, self.block_table = list(token_ids), []
        self.num_prompt = len(token_ids)
        self.num_cached_tokens = self.num_scheduled_tokens = 0
        self.is_prefill = True

    def __len__(self):
        return len(self.token_ids)

    @property
    def num_blocks(self):
        return -(-len(self) // self.block_size)

    @property
    def num_completion_tokens(self):
        return len(self) - self.num_prompt

    def append_token(self, token):
        self.token_ids.append(token)
"""

SCHEDULER = """
from nanovllm.config import Config
from nanovllm.engine.block_manager import BlockManager
from nanovllm.engine.sequence import Sequence


class Scheduler:
    '''Whole prompts first, one in each step; else everybody decodes, and who came last gives way.'''

    def __init__(self, config: Config):
        self.seqs_max, self.tokens_max = config.max_num_seqs, config.max_num_batched_tokens
        self.block_manager = BlockManager(config.num_kvcache_blocks, config.kvcache_block_size)
        self.waiting, self.running = [], []

    def is_finished(self):
        return not (self.waiting or self.running)

    def add(self, seq):
        self.waiting.append(seq)

    def schedule(self):
        step, num_left = [], self.tokens_max
        for seq in self.waiting[: self.seqs_max]:
            hits = 0 if seq.block_table else self.block_manager.can_allocate(seq)
            if hits < 0 or not num_left or (step and len(seq) > num_left):
                break
            if not seq.block_table:
                self.block_manager.allocate(seq, hits)
            seq.num_scheduled_tokens = min(len(seq) - seq.num_cached_tokens, num_left)
            num_left -= seq.num_scheduled_tokens
            step.append(seq)
        if step:
            return step, True
        for seq in self.running[: self.seqs_max]:
            while seq in self.running and not self.block_manager.can_append(seq):
                last = self.running.pop()
                self.block_manager.deallocate(last)
                self.waiting.insert(0, last)
            if seq in self.running:
                self.block_manager.may_append(seq)
                seq.num_scheduled_tokens = 1
                step.append(seq)
        return step, False

    def postprocess(self, seqs, token_ids, is_prefill):
        for seq, token in zip(seqs, token_ids):
            self.block_manager.hash_blocks(seq)
            seq.num_cached_tokens += seq.num_scheduled_tokens
            if seq.num_cached_tokens < len(seq):
                continue
            if is_prefill:
                self.running.append(self.waiting.pop(0))
            seq.append_token(token)
            if seq.num_completion_tokens == seq.max_tokens:
                self.running.remove(seq)
                self.block_manager.deallocate(seq)
"""


def checkout(folder: Path, manager: str, scheduler: str = SCHEDULER) -> Path:
    engine = folder / "nanovllm" / "engine"
    engine.mkdir(parents=True)
    (engine / "block_manager.py").write_text(manager)
    (engine / "sequence.py").write_text(SEQUENCE)
    (engine / "scheduler.py").write_text(scheduler)
    return folder


WALK = """
import sys
from kvproof.check.subjects.nano_vllm import manager_of
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import MANAGERS

done = walk(MANAGERS, manager_of(sys.argv[1]), 1, max_operations=int(sys.argv[2]), seconds=200)
print(done.finding.property if done.finding else "not refuted", done.num_operations, *sorted(done.coverage))
"""


LOOP_WALK = """
import sys
from kvproof.check.search.random_walk import walk
from kvproof.check.search.strategies import SCHEDULERS
from kvproof.check.subjects.nano_vllm import NanoVllmScheduler

subject, coverage, num_operations = NanoVllmScheduler(sys.argv[1]), set(), 0
for seed in 1, 2, 3, 4:  # four walks: a run with a long life takes up at most one of them
    done = walk(SCHEDULERS, subject, seed, max_operations=int(sys.argv[2]) // 4, seconds=50)
    num_operations += done.num_operations
    coverage |= set(done.coverage)
    if done.finding:
        break
print(done.finding or "not refuted", num_operations, *sorted(coverage))
"""


def walked(path: Path, num_operations: int, walk: str = WALK) -> str:
    """What a walk says; in a process of its own, since modules of a checkout stay imported."""
    command = [sys.executable, "-c", walk, str(path), str(num_operations)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250, check=True).stdout


def test_a_manager_of_the_same_interface_is_driven_and_not_refuted(tmp_path: Path) -> None:
    output = walked(checkout(tmp_path, MANAGER), 4_000)
    assert output.startswith("not refuted 4000")
    assert "hit on an evictable block" in output


def test_a_block_found_after_it_was_taken_is_refuted(tmp_path: Path) -> None:
    stale = MANAGER.replace("del self.found[block.content]", "pass")
    assert not walked(checkout(tmp_path, stale), 20_000).startswith("not refuted")


def test_a_manager_of_the_older_interface_is_driven_and_not_refuted(tmp_path: Path) -> None:
    output = walked(checkout(tmp_path, OLDER), 20_000)
    assert output.startswith("not refuted 20000")
    for witness in ("hit on an evictable block", "evict", "preempted", "pool full"):
        assert witness in output


@pytest.mark.parametrize(
    ("line", "instead", "properties"),
    [
        ("del self.hash_to_block_id[block.hash]", "pass", ("hit-computed", "no-use-after-free", "sharing-equal")),
        (
            "ref_count:\n                self",
            "ref_count + 1:\n                self",
            ("conservation", "lists-agree"),
        ),
        ("return len(seq) % self.size != 1 or", "return True or", ("admission-sound",)),
    ],
)
def test_one_line_of_a_manager_of_the_older_interface_that_is_another_is_found(
    tmp_path: Path, line: str, instead: str, properties: tuple[str, ...]
) -> None:
    assert OLDER.count(line) == 1
    assert walked(checkout(tmp_path, OLDER.replace(line, instead)), 50_000).startswith(properties)


def refused(path: Path, subject: str) -> str:
    """What is said of a subject that is not driven; in a process of its own."""
    script = f"""
import sys
from kvproof.check import Config
from kvproof.check.isolation.factory import found
try:
    subject = found({subject!r} + "==" + sys.argv[1])()
    subject.open(Config(caching=True))
    subject.new(1, [1], [5, 6], None, ())
    subject.can_admit(1)
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


def test_interfaces_that_are_not_driven_are_refused_with_what_there_is(tmp_path: Path) -> None:
    other = checkout(tmp_path / "other", OLDER.replace("def may_append", "def grow"))
    says = "has neither interface that kvproof drives: allocate(seq, num_cached_blocks) with hash_blocks, or the older"
    assert says in refused(other, "nano-vllm")

    older = checkout(tmp_path / "older", OLDER)
    assert "the older interface, with allocate(seq), and is not driven" in refused(older, "nano-vllm-scheduler")

    answers = "return len(hits) if needed <= len(self.free_block_ids) else -1"
    assert MANAGER.count(answers) == 1
    says_yes = MANAGER.replace(answers, "return needed <= len(self.free_block_ids)")
    output = refused(checkout(tmp_path / "yes", says_yes), "nano-vllm")
    assert output.startswith("AdapterError can_allocate of this checkout answers true or false")


def test_a_folder_without_nano_vllm_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a checkout of nano-vllm: it has no nanovllm"):
        import_module(str(tmp_path), "block_manager")


def test_a_scheduler_of_the_same_interface_is_driven_and_not_refuted(tmp_path: Path) -> None:
    output = walked(checkout(tmp_path, MANAGER), 2_400, LOOP_WALK)
    assert output.startswith("not refuted")
    assert int(output.split()[2]) >= 2_400
    for witness in ("preempted", "prompt in chunks", "hit on an evictable block", "evict"):
        assert witness in output
    assert "aborted" not in output


@pytest.mark.parametrize(
    ("line", "instead", "property"),
    [
        ("self.block_manager.deallocate(last)", "pass", "read-back"),
        ("self.waiting.insert(0, last)", "pass", "arrival-order"),  # a request is lost, and a later one comes before it
        pytest.param(
            "self.running[: self.seqs_max]",
            "self.running[: self.seqs_max - 1]",
            "progress",
            marks=pytest.mark.long,
        ),
        (
            "self.block_manager.hash_blocks(seq)",
            "seq.num_scheduled_tokens += 1; self.block_manager.hash_blocks(seq)",
            "",
        ),
        ("min(len(seq) - seq.num_cached_tokens, num_left)", "len(seq) - seq.num_cached_tokens", "budget-kept"),
    ],
)
def test_one_line_of_a_scheduler_that_is_another_is_found(
    tmp_path: Path, line: str, instead: str, property: str
) -> None:
    assert SCHEDULER.count(line) == 1
    output = walked(checkout(tmp_path, MANAGER, SCHEDULER.replace(line, instead)), 4_000, LOOP_WALK)
    assert output.startswith(f"('{property}")


@pytest.mark.engine
@pytest.mark.parametrize(("walk", "num_operations"), [(WALK, 1_000_000), (LOOP_WALK, 100_000)])
def test_nano_vllm_itself_is_not_refuted(walk: str, num_operations: int) -> None:
    path = os.environ.get("KVPROOF_NANO_VLLM")
    if not path:
        pytest.skip("KVPROOF_NANO_VLLM names no checkout of nano-vllm")
    output = walked(Path(path).absolute(), num_operations, walk)
    assert output.startswith("not refuted")
    assert int(output.split()[2]) >= num_operations
