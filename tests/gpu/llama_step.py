"""Trains a Llama-shaped model for a few steps: RMSNorm, rotary positions, grouped-query attention, SwiGLU, untied head.

Plain PyTorch. Random tokens, fused AdamW, bf16 autocast; prints and writes what train_gpt.py does.
"""

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import steps


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a decoder."""

    width: int
    layers: int
    hidden: int
    heads: int
    key_heads: int
    vocabulary: int
    sequence: int
    head_size: int = 64
    head_norms: bool = False  # of queries and keys, as Qwen3 has them
    tied: bool = False  # the output's weight is that of the tokens
    checkpointed: bool = False  # a layer's activations are computed again in the backward pass


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.key_heads, self.size = shape.heads, shape.key_heads, shape.head_size
        self.query = nn.Linear(shape.width, self.heads * self.size, bias=False)
        self.key = nn.Linear(shape.width, self.key_heads * self.size, bias=False)
        self.value = nn.Linear(shape.width, self.key_heads * self.size, bias=False)
        self.out = nn.Linear(self.heads * self.size, shape.width, bias=False)
        self.query_norm, self.key_norm = (nn.RMSNorm(self.size) if shape.head_norms else nn.Identity() for _ in range(2))

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.size).transpose(1, 2)

    def forward(self, x, cosine, sine):
        query, key, value = self.split(self.query(x), self.heads), self.split(self.key(x), self.key_heads), self.split(
            self.value(x), self.key_heads
        )  # fmt: skip
        query, key = (rotate(norm(x.float()), cosine, sine) for norm, x in ((self.query_norm, query), (self.key_norm, key)))
        repeat = self.heads // self.key_heads
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        query, key = query.to(value.dtype), key.to(value.dtype)
        return self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))


def rotate(x, cosine, sine):
    left, right = x.chunk(2, -1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm, self.network_norm = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.gate, self.up = (nn.Linear(shape.width, shape.hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        inner = self.network_norm(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        if shape.tied:
            self.output.weight = self.tokens.weight
        self.checkpointed, size = shape.checkpointed, shape.head_size
        angles = torch.arange(shape.sequence)[:, None] / 10000 ** (torch.arange(0, size, 2).float() / size)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def hidden(self, tokens):
        """What the output's layer gets."""
        x = self.tokens(tokens)
        for layer in self.layers:
            where = (x, self.cosine, self.sine)
            x = checkpoint(layer, *where, use_reentrant=False) if self.checkpointed else layer(*where)
        return self.norm(x)

    def forward(self, tokens):
        return self.output(self.hidden(tokens))


def main():
    args = steps.parse_arguments(
        "llama_step", width=1536, layers=12, sequence=1024, batch=4, vocabulary=8192, autocast=1
    )
    device = steps.start(args)
    heads = args.width // 64
    model = Decoder(Shape(args.width, args.layers, args.width * 8 // 3 // 64 * 64, heads, max(1, heads // 4), args.vocabulary,
                          args.sequence)).to(device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    data = torch.Generator().manual_seed(args.seed)

    def loss_of_step():
        tokens = torch.randint(args.vocabulary, (args.batch, args.sequence + 1), generator=data).to(device)
        with torch.autocast("cuda", torch.bfloat16, enabled=bool(args.autocast)):
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.reshape(-1, args.vocabulary).float(), tokens[:, 1:].reshape(-1))

    steps.train(args, model, optimizer, loss_of_step, samples=args.batch * args.sequence)


if __name__ == "__main__":
    main()
