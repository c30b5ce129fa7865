# SPDX-License-Identifier: Apache-2.0
"""GPT and RevGPT as plain modules of PyTorch, for networks.py. The tensors of a GPT have the names and shapes of Hugging Face's
GPT2LMHeadModel, so that its state_dicts fit both. Here a RevGPT keeps its activations, as any module does."""

from __future__ import annotations

from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

from .weights_transformers import Transformer


class Conv1D(nn.Module):
    """A linear map whose weight is (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) * 0.02), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Causal attention of (N, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, 2))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(later, float("-inf"))
        return self.c_proj((scores.softmax(3) @ v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    """Two linear maps of (N, T, width), with GELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    """Attention and MLP, each with its norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), MLP(width)

    def functions(self) -> list[Callable[[torch.Tensor], torch.Tensor]]:
        """The two F of the layer, each with the norm before it."""
        return [lambda x: self.attn(self.ln_1(x)), lambda x: self.mlp(self.ln_2(x))]


class Trunk(nn.Module):
    """Embedding, layers, and the norm of the head."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(network.classes, network.width), nn.Embedding(network.context, network.width)
        self.h = nn.ModuleList(Layer(network.width, network.heads) for _ in range(network.depth))
        self.ln_f = nn.LayerNorm(network.width)

    def begin(self, tokens: torch.Tensor) -> torch.Tensor:
        """Maps tokens (N, T) to features (N, T, width)."""
        return self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]

    def functions(self) -> list[Callable[[torch.Tensor], torch.Tensor]]:
        return [function for layer in self.h for function in layer.functions()]


class GPT(nn.Module):
    """Tokens (N, T) to logits (N, T, vocabulary): x + F(x), for attention and MLP in turn."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.transformer, self.lm_head = Trunk(network), nn.Linear(network.width, network.classes, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.transformer.begin(tokens)
        for function in self.transformer.functions():
            x = x + function(x)
        return self.lm_head(self.transformer.ln_f(x))


class RevGPT(nn.Module):
    """The same with two streams that start equal: y1 = x2 + F(x1), y2 = x1. The head takes their mean."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.reversible, self.lm_head = Trunk(network), nn.Linear(network.width, network.classes, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x1 = x2 = self.reversible.begin(tokens)
        for function in self.reversible.functions():
            x1, x2 = x2 + function(x1), x1
        return self.lm_head(self.reversible.ln_f((x1 + x2) / 2))
