"""Mappings of blocks: read, checked against both pools before anything moves, and cut into runs.

A run is a stretch of pairs in which source and target both go up by one: one copy moves it. Pairs of one run have
the same distance from source to target, so sorting by distance, then source, finds the fewest runs there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch

from .kv_cache_engine_errors import BlockOutOfRangeError, ChainedCopyError, DuplicateTargetError, MappingFormError

Mapping = torch.Tensor | Iterable[tuple[int, int]]


class Pool(NamedTuple):
    """What a mapping is checked against."""

    name: str
    num_blocks: int


def read_pairs(mapping: Mapping) -> torch.Tensor:
    """The mapping as an int64 tensor [n, 2] in main memory; a list of pairs will do. Raises MappingFormError."""
    if isinstance(mapping, torch.Tensor):
        if mapping.dtype != torch.int64 or mapping.dim() != 2 or mapping.shape[1] != 2:
            raise MappingFormError(f"a {mapping.dtype} tensor of shape {list(mapping.shape)}")
        return mapping.cpu()
    if not isinstance(mapping, Iterable):
        raise MappingFormError(mapping)
    pairs = list(mapping)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or any(type(block) is not int for block in pair):
            raise MappingFormError(pair)
    try:
        return torch.tensor(pairs, dtype=torch.int64).view(-1, 2)
    except (ValueError, OverflowError, RuntimeError) as error:  # an id beyond 64 bits
        raise MappingFormError(pairs) from error


def check_pairs(pairs: torch.Tensor, source: Pool, target: Pool) -> None:
    """Refuse ids outside their pool, a target named twice and, within one pool, a target that is a source."""
    for column, pool in enumerate((source, target)):
        ids = pairs[:, column]
        outside = (ids < 0) | (ids >= pool.num_blocks)
        if outside.any():
            pair = _pair(pairs, outside)
            raise BlockOutOfRangeError(pair[column], pool.name, pool.num_blocks, pair)
    sources, targets = pairs.unbind(1)
    writes = torch.bincount(targets, minlength=target.num_blocks)
    if (twice := writes > 1).any():
        block = int(twice.nonzero()[0])
        raise DuplicateTargetError(block, target.name, sources[targets == block].tolist())
    if source == target and (both := writes[sources] > 0).any():
        read = _pair(pairs, both)
        raise ChainedCopyError(read[0], source.name, _pair(pairs, targets == read[0]), read)


def coalesce(pairs: torch.Tensor) -> torch.Tensor:
    """The fewest runs that move the same blocks, for checked pairs, whose order does not matter.

    int64 [runs, 3], each row the first source, the first target and the number of blocks, by target: writing upwards
    is a little faster than reading upwards.
    """
    if not len(pairs):
        return torch.empty((0, 3), dtype=torch.int64)
    by_source = pairs[pairs[:, 0].argsort()]
    distance = by_source[:, 1] - by_source[:, 0]
    distance, order = distance.sort(stable=True)
    sources, targets = by_source[order].unbind(1)
    is_start = torch.ones(len(pairs), dtype=torch.bool)
    is_start[1:] = (distance.diff() != 0) | (sources.diff() != 1)
    starts = is_start.nonzero().flatten()
    lengths = torch.cat((starts, torch.tensor([len(pairs)]))).diff()
    runs = torch.stack((sources[starts], targets[starts], lengths), 1)
    return runs[runs[:, 1].argsort()]


def _pair(pairs: torch.Tensor, which: torch.Tensor) -> tuple[int, int]:
    """The first of the pairs that are marked."""
    source, target = pairs[which.nonzero()[0, 0]].tolist()
    return source, target
