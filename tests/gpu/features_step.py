"""A deep perceptron that trains with one of PyTorch's features that take launches out of sight: graphs, compile, profiler."""

import contextlib
import sys

import steps
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def with_feature(feature, model, sample):
    """The model with the feature; the profiler's is around the training."""
    if feature == "graphs":  # every other layer, so that graphs and plain launches use the same blocks by turns
        for number in range(1, len(model) - 1, 2):
            model[number] = torch.cuda.make_graphed_callables(model[number], (sample.clone().requires_grad_(True),))
    if feature in ("compile", "aot_eager"):
        return torch.compile(model, backend="inductor" if feature == "compile" else "aot_eager")
    return model


def main():
    feature = sys.argv.pop(1)
    args = steps.parse_arguments("features_step", width=2048, layers=16, batch=2048)
    device = steps.start(args)
    data = torch.Generator().manual_seed(args.seed)
    sample = torch.randn(args.batch, args.width, generator=data).to(device)
    model = nn.Sequential(*(Layer(args.width) for _ in range(args.layers))).to(device)
    running = with_feature(feature, model, sample)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss_of_step():
        return running(torch.randn(args.batch, args.width, generator=data).to(device)).square().mean()

    profiler = contextlib.nullcontext()
    if feature == "profiler":
        profiler = torch.profiler.profile(profile_memory=True)
    with profiler as profile:
        steps.train(args, model, optimizer, loss_of_step, samples=args.batch)
    if feature == "profiler":
        print(f"profiler: {len(profile.key_averages())} kinds of events", flush=True)


if __name__ == "__main__":
    main()
