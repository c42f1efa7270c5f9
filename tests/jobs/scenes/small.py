"""The models that the pages of this folder train: small to compute, large to hold. 272 MiB with gradients and AdamW's state."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LAYERS, LENGTH = 4096, 512, 6, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """Predicts the next token from the one before and its place."""

    def __init__(self, layers=LAYERS):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), tokens[:, 1:].flatten())


def make(seed, layers=LAYERS):
    """A model and its optimizer, the same for the same seed."""
    torch.manual_seed(seed)
    model = Model(layers).cuda()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batches(seed):
    """An endless series of batches in host memory."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(VOCABULARY, (4, LENGTH + 1), generator=generator)


def step(model, optimizer, tokens):
    """One step of training; the loss stays on the GPU."""
    optimizer.zero_grad(set_to_none=True)
    loss = model(tokens.cuda())
    loss.backward()
    optimizer.step()
    return loss.detach()


class Rows(nn.Module):
    """Little to learn and much to keep for the backward pass: 12 MiB a sample, in tensors of 1/4 MiB a sample."""

    FEATURES, LAYERS = 1 << 16, 24

    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.randn(self.FEATURES) / 4) for _ in range(self.LAYERS))

    def forward(self, x):
        for scale in self.scales:
            x = torch.tanh(x * scale) + x
        return x.square().mean()


def rows(batch, seed):
    return torch.randn(batch, Rows.FEATURES, generator=torch.Generator().manual_seed(seed))
