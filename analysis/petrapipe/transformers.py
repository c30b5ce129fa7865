# SPDX-License-Identifier: Apache-2.0
"""GPT, Llama and their reversible forms as plain modules of PyTorch, for networks.py. The tensors
of a GPT and of a Llama have the names and shapes of Hugging Face's GPT2LMHeadModel and
LlamaForCausalLM, so that its state_dicts fit both. Here a reversible network keeps its activations,
as any module does."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .coupling import Coupling
from .weights_transformers import EPSILON, Transformer


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of (N, heads, T, features of a head) to (N, T, features of all heads)."""
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(later, float("-inf"))
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


# --- GPT ---


class Conv1D(nn.Module):
    """A linear map whose weight is (in, out)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.randn(inputs, outputs) * 0.02),
            nn.Parameter(torch.zeros(outputs)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Attention(nn.Module):
    """Causal attention of (N, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(
            attend(
                *(
                    part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                    for part in self.c_attn(x).chunk(3, 2)
                )
            )
        )


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
        self.ln_1, self.attn, self.ln_2, self.mlp = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.LayerNorm(width),
            MLP(width),
        )

    def functions(self) -> list[nn.Module]:
        """Returns the two F of the layer, each with the norm before it."""
        return [nn.Sequential(self.ln_1, self.attn), nn.Sequential(self.ln_2, self.mlp)]


class Tables(nn.Module):
    """Tokens (N, T) to features (N, T, width)."""

    def __init__(self, tokens: nn.Embedding, positions: nn.Embedding) -> None:
        super().__init__()
        self.wte, self.wpe = tokens, positions

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]


class Trunk(nn.Module):
    """Embedding, layers, and the norm of the head."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.wte, self.wpe = (
            nn.Embedding(network.classes, network.width),
            nn.Embedding(network.context, network.width),
        )
        self.h = nn.ModuleList(Layer(network.width, network.heads) for _ in range(network.depth))
        self.ln_f = nn.LayerNorm(network.width)

    def parts(self) -> tuple[nn.Module, list[nn.Module], nn.Module]:
        """Returns the embedding, the functions F of all layers, and the norm."""
        return (
            Tables(self.wte, self.wpe),
            [function for layer in self.h for function in layer.functions()],
            self.ln_f,
        )


# --- Llama ---


def rotate(x: torch.Tensor, base: float) -> torch.Tensor:
    """Rotary positions (Su et al. 2021) of (N, heads, T, d): at position t, feature i and feature i
    + d/2 rotate by the angle t base^(-2i/d)."""
    half = x.shape[3] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.outer(
        torch.arange(x.shape[2], dtype=torch.float64, device=x.device), frequencies
    )
    cos, sin, (first, second) = angles.cos().to(x.dtype), angles.sin().to(x.dtype), x.split(half, 3)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), 3)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-5) times the weight, over the features of each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON))


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class LlamaAttention(nn.Module):
    """Causal attention of (N, T, width) with rotary positions; several heads of queries may share a
    head of keys and values."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.of_head, self.shared, self.base = (
            network.width // network.heads,
            network.heads // network.kv_heads,
            network.rotary_base,
        )
        self.q_proj, self.o_proj = (
            linear(network.width, network.width),
            linear(network.width, network.width),
        )
        self.k_proj, self.v_proj = (
            linear(network.width, network.kv_heads * self.of_head) for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(2, (-1, self.of_head)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        k, v = (part.repeat_interleave(self.shared, 1) for part in (rotate(k, self.base), v))
        return self.o_proj(attend(rotate(q, self.base), k, v))


class LlamaMLP(nn.Module):
    """W2 (silu(g) u) of (N, T, width), where g and u are two linear maps of the input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            linear(width, hidden),
            linear(width, hidden),
            linear(hidden, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaLayer(nn.Module):
    """Attention and MLP, each with its norm."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(network.width), LlamaAttention(network)
        self.post_attention_layernorm, self.mlp = (
            RMSNorm(network.width),
            LlamaMLP(network.width, network.hidden),
        )

    def functions(self) -> list[nn.Module]:
        """Returns the two F of the layer, each with the norm before it."""
        return [
            nn.Sequential(self.input_layernorm, self.self_attn),
            nn.Sequential(self.post_attention_layernorm, self.mlp),
        ]


class LlamaTrunk(nn.Module):
    """Embedding, layers, and the norm of the head."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(network.classes, network.width)
        self.layers = nn.ModuleList(LlamaLayer(network) for _ in range(network.depth))
        self.norm = RMSNorm(network.width)

    def parts(self) -> tuple[nn.Module, list[nn.Module], nn.Module]:
        """Returns the embedding, the functions F of all layers, and the norm."""
        return (
            self.embed_tokens,
            [function for layer in self.layers for function in layer.functions()],
            self.norm,
        )


# --- networks ---


class TokenModel(nn.Module):
    """Tokens (N, T) to logits (N, T, vocabulary). The attribute with the trunk has the name that
    its tensors have in a state_dict."""

    trunk_class: type[nn.Module]

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.trunk_name, self.coupling = network.trunk(), network.coupling
        self.add_module(self.trunk_name, self.trunk_class(network))
        self.lm_head = linear(network.width, network.classes)

    def parts(self) -> tuple[nn.Module, list[nn.Module], nn.Module]:
        """Returns the embedding, the functions F of all layers, and the norm of the head."""
        return getattr(self, self.trunk_name).parts()


class Ordinary(TokenModel):
    """x + F(x), for attention and MLP in turn."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedding, functions, norm = self.parts()
        x = embedding(tokens)
        for function in functions:
            x = x + function(x)
        return self.lm_head(norm(x))


class Reversible(TokenModel):
    """Two streams that start equal, with a Coupling of each F; the head takes their mean."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedding, functions, norm = self.parts()
        x1 = x2 = embedding(tokens)
        for function in functions:
            x1, x2 = Coupling(function, self.coupling)(x1, x2)
        return self.lm_head(norm((x1 + x2) / 2))


class GPT(Ordinary):
    trunk_class = Trunk


class RevGPT(Reversible):
    trunk_class = Trunk


class Llama(Ordinary):
    trunk_class = LlamaTrunk


class RevLlama(Reversible):
    trunk_class = LlamaTrunk
