# mypy: ignore-errors
"""A Llama in the style of Hugging Face: rotate_half, repeat_kv by expand, an additive mask, (B, H, S, D) throughout."""

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional


class LlamaRMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c.dim // c.heads
        self.register_buffer(
            "inv_freq", 1.0 / (c.rope_base ** (torch.arange(0, width, 2).float() / width)), persistent=False
        )

    def forward(self, x, position_ids):
        inv_freq = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        freqs = (inv_freq @ position_ids[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(x.dtype), emb.sin().to(x.dtype)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def repeat_kv(hidden_states, n_rep):
    batch, heads, slen, width = hidden_states.shape
    if n_rep == 1:
        return hidden_states
    return (
        hidden_states[:, :, None, :, :]
        .expand(batch, heads, n_rep, slen, width)
        .reshape(batch, heads * n_rep, slen, width)
    )


class LlamaAttention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.c, self.head_dim = c, c.dim // c.heads
        self.scaling = self.head_dim**-0.5 * c.at(layer, "softmax-scale", 1.01, 1.0)
        self.roll = c.at(layer, "permuted-heads", 1, 0)
        self.masked = c.at(layer, "no-mask", False, True)
        self.q_proj = nn.Linear(c.dim, c.dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(c.dim, c.dim, bias=False)

    def forward(self, hidden_states, cos, sin, attention_mask):
        batch, slen, _ = hidden_states.shape
        shape = (batch, slen, -1, self.head_dim)
        query = self.q_proj(hidden_states).view(shape).transpose(1, 2)
        key = self.k_proj(hidden_states).view(shape).transpose(1, 2)
        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
        key, value = repeat_kv(key, self.c.heads // self.c.kv_heads), repeat_kv(value, self.c.heads // self.c.kv_heads)
        if self.c.sdpa:
            output = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=self.scaling)
        else:
            weights = torch.matmul(query, key.transpose(2, 3)) * self.scaling
            weights = weights + attention_mask if self.masked else weights
            weights = functional.softmax(weights, dim=-1)
            weights = functional.dropout(weights, p=self.c.dropout, training=self.c.dropout > 0)
            output = torch.matmul(weights, value)
        if self.roll:
            output = output.roll(self.roll, 1)
        return self.o_proj(output.transpose(1, 2).contiguous().reshape(batch, slen, -1))


class LlamaMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.dim, c.hidden, bias=False)
        self.up_proj = nn.Linear(c.dim, c.hidden, bias=False)
        self.down_proj = nn.Linear(c.hidden, c.dim, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaDecoderLayer(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.self_attn = LlamaAttention(c, layer)
        self.mlp = LlamaMLP(c)
        self.input_layernorm = LlamaRMSNorm(c.dim, c.at(layer, "norm-eps", 1e-3, 1e-5))
        self.post_attention_layernorm = LlamaRMSNorm(c.dim, 1e-5)

    def forward(self, hidden_states, cos, sin, attention_mask):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states = residual + self.self_attn(hidden_states, cos, sin, attention_mask)
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        return residual + self.mlp(hidden_states)


class LlamaModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.dim)
        self.layers = nn.ModuleList(LlamaDecoderLayer(c, layer) for layer in range(c.layers))
        self.norm = LlamaRMSNorm(c.dim, 1e-5)
        self.rotary_emb = LlamaRotaryEmbedding(c)

    def forward(self, input_ids):
        slen = input_ids.shape[1]
        position_ids = torch.arange(slen, device=input_ids.device)[None]
        hidden_states = self.embed_tokens(input_ids)
        mask = torch.full((slen, slen), torch.finfo(hidden_states.dtype).min, dtype=hidden_states.dtype).triu(1)
        cos, sin = self.rotary_emb(hidden_states, position_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, cos, sin, mask[None, None])
        return self.norm(hidden_states)


class LlamaForCausalLM(nn.Module):
    NAMES: ClassVar = {
        "tok": "model.embed_tokens",
        "out": "lm_head",
        "norm": "model.norm",
        "layers": "model.layers",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm",
    }

    def __init__(self, c):
        super().__init__()
        self.vocab_size = c.vocab
        self.model = LlamaModel(c)
        self.lm_head = nn.Linear(c.dim, c.vocab, bias=False)

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.model(input_ids))
        logits = logits.float() if logits.dtype == torch.bfloat16 else logits
        return functional.cross_entropy(logits.view(-1, self.vocab_size), labels.view(-1))
