"""Mappings of blocks: read, checked against both pools before anything moves, and cut into runs.

A run is a stretch of pairs in which source and target both go up by one: one copy moves it. No two pairs have one
target, so in the order of the targets the pairs of a run are neighbours, and the cuts between them give the fewest
runs there are. That order also shows a target that is named twice. A step moves a handful of blocks: the arithmetic
is numpy's, whose calls cost a fraction of a tensor's.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .kv_cache_engine_errors import BlockOutOfRangeError, ChainedCopyError, DuplicateTargetError, MappingFormError

Mapping = torch.Tensor | Iterable[tuple[int, int]]
Pairs = NDArray[np.int64]  # [n, 2], source and target
Runs = NDArray[np.int64]  # [n, 3], first source, first target, number of blocks


class Pool(NamedTuple):
    """What a mapping is checked against."""

    name: str
    num_blocks: int


def read_pairs(mapping: Mapping) -> Pairs:
    """The mapping in main memory; an int64 tensor [n, 2] or a list of pairs. Raises MappingFormError."""
    if isinstance(mapping, torch.Tensor):
        if mapping.dtype != torch.int64 or mapping.dim() != 2 or mapping.shape[1] != 2:
            raise MappingFormError(f"a {mapping.dtype} tensor of shape {list(mapping.shape)}")
        read: Pairs = mapping.cpu().numpy()
        return read
    if not isinstance(mapping, Iterable):
        raise MappingFormError(mapping)
    pairs = list(mapping)
    if set(map(type, pairs)) - {tuple} or set(map(len, pairs)) - {2} or set(map(type, chain(*pairs))) - {int}:
        for pair in pairs:  # one is wrong, or in a form that is right and seldom seen
            if not isinstance(pair, tuple | list) or len(pair) != 2 or any(type(block) is not int for block in pair):
                raise MappingFormError(pair)
    try:
        return np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)
    except OverflowError as error:  # an id beyond 64 bits
        raise MappingFormError(pairs) from error


def checked_by_target(pairs: Pairs, source: Pool, target: Pool) -> Pairs:
    """The pairs in ascending order of their targets.

    Refuses ids outside their pool, a target named twice and, within one pool, a target that is a source.
    """
    most = pairs.view(np.uint64).max(0)  # an id below 0 is a very large one
    if most[0] >= source.num_blocks or most[1] >= target.num_blocks:
        raise _out_of_range(pairs, source, target)
    ordered: Pairs = pairs[pairs[:, 1].argsort(kind="stable")]
    targets = ordered[:, 1]
    if not (targets[1:] > targets[:-1]).all():
        block = int(targets[1:][targets[1:] == targets[:-1]][0])
        raise DuplicateTargetError(block, target.name, ordered[targets == block, 0].tolist())
    if source == target:
        places = np.searchsorted(targets, pairs[:, 0])
        both = targets[np.minimum(places, len(targets) - 1)] == pairs[:, 0]
        if both.any():
            read = _first(pairs, both)
            raise ChainedCopyError(read[0], source.name, _first(pairs, pairs[:, 1] == read[0]), read)
    return ordered


def coalesce(pairs: Pairs) -> Runs:
    """The fewest runs that move the same blocks, by target, for at least one pair as `checked_by_target` gives them.

    Writing upwards is a little faster than reading upwards.
    """
    is_start = np.ones(len(pairs), np.bool_)
    is_start[1:] = (pairs[1:] - pairs[:-1] != 1).any(1)
    starts = is_start.nonzero()[0]
    runs = np.empty((len(starts), 3), np.int64)
    runs[:, :2] = pairs[starts]
    runs[:-1, 2] = starts[1:] - starts[:-1]
    runs[-1, 2] = len(pairs) - starts[-1]
    return runs


def _out_of_range(pairs: Pairs, source: Pool, target: Pool) -> BlockOutOfRangeError:
    column, pool = (0, source) if pairs[:, 0].view(np.uint64).max() >= source.num_blocks else (1, target)
    ids = pairs[:, column]
    pair = _first(pairs, (ids < 0) | (ids >= pool.num_blocks))
    return BlockOutOfRangeError(pair[column], pool.name, pool.num_blocks, pair)


def _first(pairs: Pairs, which: NDArray[np.bool_]) -> tuple[int, int]:
    """The first of the pairs that are marked."""
    source, target = pairs[which.argmax()].tolist()
    return source, target
