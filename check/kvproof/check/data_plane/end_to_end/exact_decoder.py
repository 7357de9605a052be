"""A decoder in exact integer arithmetic: its tokens depend on every element of every key and value, and on no rounding.

All numbers are int64 and wrap, that is, they are residues modulo 2^64: sums are the same in any order. Grouped-query
attention is as usual (a score for each query and earlier key, a weight for each score, a weighted sum of values), but
the weight is a bijective mix of the score where others take the exponential function, and no norm is needed.

Keys and values are integers from 0 to 7, which every element type of a KV cache holds exactly, fp8 too. Position enters
twice: by the embedding, so the same token has another key at another place, and by the place from which a key is read
(a bias of each score, as in ALiBi), or two blocks that change places would not be noticed by a sum over both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

_GOLDEN = -7046029254386353131  # 2^64 divided by the golden ratio, as int64
_ODD = -4658895280553007687
_ELEMENT_SHIFT, ELEMENT_MAX = 61, 7  # an element is the top three bits of a word


@dataclass(frozen=True)
class Geometry:
    """Sizes of the model; head_size in elements. A latent model keeps one row a token, which is key and value."""

    num_layers: int = 2
    num_kv_heads: int = 2
    queries_per_kv_head: int = 2
    head_size: int = 8
    vocabulary_size: int = 97
    latent: bool = False

    @property
    def width(self) -> int:
        """Elements of a hidden state."""
        return self.num_kv_heads * self.queries_per_kv_head * self.head_size


class Memory(Protocol):
    """Where one sequence's keys and values are kept while a chunk of it is computed."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep the chunk's keys and values, int64 [tokens, KV heads, head size]."""

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of every position up to the chunk's end, its own included; shapes as for `write`."""


class ExactDecoder:
    """Random weights from a seed. The weights do not depend on the device."""

    def __init__(self, geometry: Geometry, seed: int, device: torch.device) -> None:
        self.geometry, self.device = geometry, device
        drawn = torch.Generator().manual_seed(seed)
        width, kv_width = geometry.width, geometry.num_kv_heads * geometry.head_size

        def weights(*shape: int) -> torch.Tensor:
            return torch.randint(-(2**62), 2**62, shape, generator=drawn).to(device)

        self.embedding, self.head = weights(geometry.vocabulary_size, width), weights(geometry.vocabulary_size, width)
        self.qkv = [weights(width + 2 * kv_width, width) for _ in range(geometry.num_layers)]
        self.output = [weights(width, width) for _ in range(geometry.num_layers)]

    def scores(self, token_ids: list[int], start: int, memory: Memory) -> torch.Tensor:
        """Scores [tokens, vocabulary] of what follows each token; the first one stands at position `start`."""
        geometry = self.geometry
        num_tokens, end = len(token_ids), start + len(token_ids)
        positions = torch.arange(start, end, device=self.device)
        places = torch.arange(end, device=self.device)
        is_seen = places <= positions[:, None]
        bias = (places * _GOLDEN)[None, :, None, None]
        hidden = stirred(self.embedding[torch.tensor(token_ids, device=self.device)] + (positions[:, None] + 1) * _ODD)
        heads = (num_tokens, geometry.num_kv_heads)
        kv_width = geometry.num_kv_heads * geometry.head_size
        for layer in range(geometry.num_layers):
            parts = torch.split(_apply(self.qkv[layer], stirred(hidden)), [geometry.width, kv_width, kv_width], dim=1)
            keys, values = (_elements(part).view(*heads, geometry.head_size) for part in parts[1:])
            memory.write(layer, keys, keys if geometry.latent else values)
            keys, values = memory.read(layer)
            queries = parts[0].reshape(*heads, geometry.queries_per_kv_head, geometry.head_size)
            scores = (queries[:, None] * keys[None, :, :, None]).sum(-1) + bias
            weights = stirred(scores) * is_seen[:, :, None, None]
            context = (weights[..., None] * values[None, :, :, None]).sum(1)
            hidden = hidden + _apply(self.output[layer], context.reshape(num_tokens, geometry.width))
        return _apply(self.head, stirred(hidden))


class NoPages:
    """The memory of a sequence that is computed whole: what was just written is all there is."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep them."""
        self.kept = keys, values

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """What was written."""
        return self.kept


def choose(scores: torch.Tensor, salt: int) -> int:
    """The next token: greedy without a salt; with one, the greatest of the scores as that salt stirs them."""
    return int((stirred(scores ^ salt) if salt else scores).argmax())


def stirred(words: torch.Tensor) -> torch.Tensor:
    """A bijection of int64 in which each bit of the result depends on each bit of the word."""
    words = (words ^ ((words >> 32) & 0xFFFFFFFF)) * _GOLDEN
    words = (words ^ ((words >> 29) & 0x7FFFFFFFF)) * _ODD
    return words ^ ((words >> 32) & 0xFFFFFFFF)


def _apply(weights: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """weights [out, in] on hidden [tokens, in]; CUDA has no integer matrix product."""
    return (hidden[:, None] * weights[None]).sum(-1)


def _elements(words: torch.Tensor) -> torch.Tensor:
    return (words >> _ELEMENT_SHIFT) & ELEMENT_MAX
