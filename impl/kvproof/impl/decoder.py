"""A small decoder with random weights, for profiling memory without a model."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class ModelGeometry:
    """The sizes of a model that the KV cache depends on; head_size in elements, num_kv_heads per rank."""

    num_layers: int
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype
    vocabulary_size: int = 1000
    latent: bool = False


SMALL = ModelGeometry(num_layers=2, num_kv_heads=2, head_size=32, dtype=torch.float32)


class Decoder(nn.Module):
    """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary], with grouped-query attention."""

    def __init__(self, geometry: ModelGeometry = SMALL, queries_per_kv_head: int = 2) -> None:
        super().__init__()
        width = geometry.num_kv_heads * queries_per_kv_head * geometry.head_size
        self.embedding = nn.Embedding(geometry.vocabulary_size, width)
        self.layers = nn.ModuleList(_Layer(geometry, width) for _ in range(geometry.num_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, geometry.vocabulary_size, bias=False)
        self.to(geometry.dtype).requires_grad_(False)

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.embedding(token_ids)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


class _Layer(nn.Module):
    def __init__(self, geometry: ModelGeometry, width: int) -> None:
        super().__init__()
        self.sizes = [width, *[geometry.num_kv_heads * geometry.head_size] * 2]
        self.head_size = geometry.head_size
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, sum(self.sizes), bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.attention_norm(hidden)).split(self.sizes, dim=-1)
        query, key, value = (part.unflatten(-1, (-1, self.head_size)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        hidden = hidden + self.output(attended.transpose(1, 2).flatten(2))
        changed: torch.Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return changed
