"""Reads mappings of blocks, checks them against both pools before anything moves, and cuts them into runs.

A run is a sequence of pairs in which source and target both increase by one; one copy moves it. No two pairs have the
same target, so in the order of targets the pairs of a run are neighbours, and cutting between them gives the smallest
number of runs. That order also shows a target that is named twice, so one pass does everything.

A step moves a few blocks, long after the step before. For these, plain Python on integers is several times faster than
tensor operations, whose code has to be loaded into the cache first, and it is not slower for thousands of blocks.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import torch

from .errors import BlockManagerError, BlockOutOfRangeError, ChainedCopyError, DuplicateTargetError, MappingFormError

Pair = tuple[int, int]  # source, target
Mapping = torch.Tensor | Iterable[Pair]
_TARGET = itemgetter(1)
_INT64_MAX = 2**63 - 1


class Pool(NamedTuple):
    """The name and size of a pool, against which a mapping is checked."""

    name: str
    num_blocks: int


class Run(NamedTuple):
    """Neighbouring blocks that one copy moves."""

    source: int
    target: int
    length: int


def read_pairs(mapping: Mapping) -> list[Pair]:
    """Return the pairs of an int64 tensor of shape [n, 2], or of a list. Raises MappingFormError."""
    if isinstance(mapping, torch.Tensor):
        if mapping.dtype != torch.int64 or mapping.dim() != 2 or mapping.shape[1] != 2:
            raise MappingFormError(f"a {mapping.dtype} tensor of shape {list(mapping.shape)}")
        return [(source, target) for source, target in mapping.tolist()]
    if not isinstance(mapping, Iterable):
        raise MappingFormError(mapping)
    pairs = list(mapping)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise MappingFormError(pair)
        source, target = pair
        if type(source) is not int or type(target) is not int:
            raise MappingFormError(pair)
        if not -_INT64_MAX <= source <= _INT64_MAX or not -_INT64_MAX <= target <= _INT64_MAX:
            raise MappingFormError(pairs)
    return pairs


def runs_of(pairs: Sequence[Pair], source: Pool, target: Pool) -> list[Run]:
    """Return the smallest list of runs that moves these blocks, in the order of targets; there is at least one pair.

    Raises BlockOutOfRangeError, DuplicateTargetError and, within one pool, ChainedCopyError if a target is a source.
    """
    num_sources, num_targets = source.num_blocks, target.num_blocks
    ordered = sorted(pairs, key=_TARGET)
    runs = []
    first_read, first_written = ordered[0]
    length, last = 0, -1
    for read, written in ordered:
        if not 0 <= read < num_sources or not last < written < num_targets:
            raise _refusal(pairs, source, target)
        if read != first_read + length or written != first_written + length:
            runs.append(Run(first_read, first_written, length))
            first_read, first_written, length = read, written, 0
        length, last = length + 1, written
    runs.append(Run(first_read, first_written, length))
    if source == target and not {written for _, written in pairs}.isdisjoint([read for read, _ in pairs]):
        raise _chain(pairs, source)
    return runs


def _refusal(pairs: Sequence[Pair], source: Pool, target: Pool) -> BlockManagerError:
    """Return the error: the first id outside its pool, sources first, else a target that is named twice."""
    for column, pool in enumerate((source, target)):
        for pair in pairs:
            if not 0 <= pair[column] < pool.num_blocks:
                return BlockOutOfRangeError(pair[column], pool.name, pool.num_blocks, (pair[0], pair[1]))
    twice = min(block for block, count in Counter(map(_TARGET, pairs)).items() if count > 1)
    return DuplicateTargetError(twice, target.name, [read for read, written in pairs if written == twice])


def _chain(pairs: Sequence[Pair], pool: Pool) -> ChainedCopyError:
    """Return the error for the first pair that reads a block that another one writes."""
    writers = {written: (read, written) for read, written in pairs}
    reader = next((read, written) for read, written in pairs if read in writers)
    return ChainedCopyError(reader[0], pool.name, writers[reader[0]], reader)
