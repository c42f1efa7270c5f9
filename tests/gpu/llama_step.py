"""Trains a Llama-shaped model for a few steps: RMSNorm, rotary positions, grouped-query attention, SwiGLU, untied head.

Plain PyTorch. Random tokens, fused AdamW, bf16 autocast; prints and writes what train_gpt.py does.
"""

import torch
from torch import nn
from torch.nn import functional as F

import steps


class Attention(nn.Module):
    def __init__(self, width, heads, key_heads):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, key_heads * self.size, bias=False)
        self.value = nn.Linear(width, key_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def split(self, x, heads):
        return x.view(*x.shape[:2], heads, self.size).transpose(1, 2)

    def forward(self, x, cosine, sine):
        query, key, value = self.split(self.query(x), self.heads), self.split(self.key(x), self.key_heads), self.split(
            self.value(x), self.key_heads
        )  # fmt: skip
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        repeat = self.heads // self.key_heads
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        out = F.scaled_dot_product_attention(query, key.to(query.dtype), value.to(query.dtype), is_causal=True)
        return self.out(out.transpose(1, 2).reshape(x.shape))


def rotate(x, cosine, sine):
    left, right = x.float().chunk(2, -1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width, heads, key_heads, hidden):
        super().__init__()
        self.attention_norm, self.network_norm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads, key_heads)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        inner = self.network_norm(x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Llama(nn.Module):
    def __init__(self, args):
        super().__init__()
        heads = args.width // 64
        self.tokens = nn.Embedding(args.vocabulary, args.width)
        self.layers = nn.ModuleList(
            Layer(args.width, heads, max(1, heads // 4), args.width * 8 // 3 // 64 * 64) for _ in range(args.layers)
        )
        self.norm = nn.RMSNorm(args.width)
        self.head = nn.Linear(args.width, args.vocabulary, bias=False)
        angles = torch.arange(args.sequence)[:, None] / 10000 ** (torch.arange(0, 64, 2) / 64)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def main():
    args = steps.parse_arguments(
        "llama_step", width=1536, layers=12, sequence=1024, batch=4, vocabulary=8192, autocast=1
    )
    device = steps.start(args)
    model = Llama(args).to(device)
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
