"""A decoder in exact integer arithmetic: its tokens depend on every element of every key and value, and on no rounding.

All numbers are int64 and wrap around, so they are residues modulo 2^64 and a sum is the same in any order.
Grouped-query attention works as usual (a score for each query and earlier key, a weight for each score, a weighted sum
of values), but the weight is a bijective mix of the score instead of its exponential, and nothing is normalised.

Keys and values are integers from 0 to 7, which every element type of a KV cache represents exactly, fp8 included. The
position enters twice. The embedding depends on it, so that the same token has another key at another position. Each
score has a bias that depends on the position from which the key was read, as in ALiBi; without it a sum over two
blocks would not reveal that the blocks were exchanged.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

_GOLDEN = -7046029254386353131  # 2^64 divided by the golden ratio, as int64
_ODD = -4658895280553007687
_ELEMENT_SHIFT, ELEMENT_MAX = 61, 7  # an element is the top three bits of a word


@dataclass(frozen=True)
class Geometry:
    """Sizes of the model; head_size in elements. A latent model keeps one row per token, as both key and value."""

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
    """Stores the keys and values of one sequence while a chunk of it is computed."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the keys and values of the chunk, int64 [tokens, KV heads, head size]."""

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all positions up to the end of the chunk, the chunk included; shapes as for `write`."""


class ExactDecoder:
    """The model, with random weights drawn from a seed. The weights do not depend on the device."""

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
        """Scores [tokens, vocabulary] of the token after each given token. start: position of the first given token."""
        geometry = self.geometry
        num_tokens, end = len(token_ids), start + len(token_ids)
        positions = torch.arange(start, end, device=self.device)
        places = torch.arange(end, device=self.device)
        is_seen = places <= positions[:, None]
        bias = (places * _GOLDEN)[None, :, None, None]
        hidden = mixed(self.embedding[torch.tensor(token_ids, device=self.device)] + (positions[:, None] + 1) * _ODD)
        heads = (num_tokens, geometry.num_kv_heads)
        kv_width = geometry.num_kv_heads * geometry.head_size
        for layer in range(geometry.num_layers):
            parts = torch.split(_apply(self.qkv[layer], mixed(hidden)), [geometry.width, kv_width, kv_width], dim=1)
            keys, values = (_elements(part).view(*heads, geometry.head_size) for part in parts[1:])
            memory.write(layer, keys, keys if geometry.latent else values)
            keys, values = memory.read(layer)
            queries = parts[0].reshape(*heads, geometry.queries_per_kv_head, geometry.head_size)
            scores = (queries[:, None] * keys[None, :, :, None]).sum(-1) + bias
            weights = mixed(scores) * is_seen[:, :, None, None]
            context = (weights[..., None] * values[None, :, :, None]).sum(1)
            hidden = hidden + _apply(self.output[layer], context.reshape(num_tokens, geometry.width))
        return _apply(self.head, mixed(hidden))


class NoPages:
    """The memory of a sequence that is computed in one chunk: it holds only the keys and values just written."""

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store the keys and values of the layer that is being computed."""
        self.kept = keys, values

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values of the last `write`."""
        return self.kept


def choose(scores: torch.Tensor, salt: int) -> int:
    """The next token: the one with the greatest score, or with a salt the greatest after mixing the salt in."""
    return int((mixed(scores ^ salt) if salt else scores).argmax())


def mixed(words: torch.Tensor) -> torch.Tensor:
    """Mix the bits: a bijection of int64 in which each bit of the result depends on each bit of the word."""
    words = (words ^ ((words >> 32) & 0xFFFFFFFF)) * _GOLDEN
    words = (words ^ ((words >> 29) & 0x7FFFFFFFF)) * _ODD
    return words ^ ((words >> 32) & 0xFFFFFFFF)


def _apply(weights: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Product of weights [out, in] and hidden [tokens, in]. Written as a sum, as CUDA has no integer matrix product."""
    return (hidden[:, None] * weights[None]).sum(-1)


def _elements(words: torch.Tensor) -> torch.Tensor:
    return (words >> _ELEMENT_SHIFT) & ELEMENT_MAX
