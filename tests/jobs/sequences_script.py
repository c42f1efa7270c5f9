"""The example's model, trained in one of three ways in which not every step is the one before: gradients accumulated
over micro-batches, an evaluation every few steps, sequences of three lengths in a seeded order.

Writes train_gpt.py's report (--json) with a list more: what each step was, how long it took, and Spillway's figures
after it where Spillway runs. Plain PyTorch otherwise.
"""

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "integration" / "examples"), str(ROOT / "integration" / "python")]

import torch  # noqa: E402  (the path comes first)
import train_gpt  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import spillway  # noqa: E402

EVALUATE_EVERY = 4
MICRO_BATCHES = 4


class GPT(train_gpt.GPT):
    """The same for sequences of any length up to --sequence."""

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.reshape(-1, train_gpt.VOCABULARY).float(), targets.reshape(-1))


@torch.no_grad()
def evaluate(model, batches):
    """Two batches of half the size, whose loss is part of the report."""
    model.eval()
    total = 0.0
    for _ in range(2):
        tokens, targets = batches.next()
        half = tokens.shape[0] // 2
        total = total + model(tokens[:half], targets[:half])
    model.train()
    return total


def lengths_of(args):
    """The length of each step: three, in an order that never recurs."""
    choice = random.Random(args.seed)
    lengths = (args.sequence, args.sequence * 3 // 4, args.sequence // 2)
    return [choice.choice(lengths) for _ in range(args.steps)]


def training_step(model, optimizer, batches, micro_batches, length):
    optimizer.zero_grad(set_to_none=True)
    total = None
    for _ in range(micro_batches):
        tokens, targets = batches.next()
        loss = model(tokens[:, :length], targets[:, :length]) / micro_batches
        loss.backward()
        total = loss.detach() if total is None else total + loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def figures():
    """Spillway's figures of the first device; None where it does not run."""
    try:
        return spillway.stats()["devices"][0]
    except (spillway.NotActiveError, IndexError):
        return None


def main():
    kind = os.environ["SEQUENCES_JOB"]
    args = train_gpt.parse_arguments()
    device = torch.device(args.device)
    train_gpt.make_repeatable(args)
    model = GPT(args).to(device)
    optimizer = train_gpt.make_optimizer(model, args)
    batches = train_gpt.Batches(train_gpt.load_text(args.data, args.data_limit), args, device)
    progress = train_gpt.Progress(args, device, 0)
    lengths = lengths_of(args) if kind == "lengths" else [args.sequence] * args.steps
    notes = []
    with sdpa_kernel(SDPBackend.MATH) if args.sdpa == "math" else contextlib.nullcontext():
        for step, length in enumerate(lengths, start=1):
            begin, name = time.perf_counter(), str(length)
            if kind == "evaluation" and step % EVALUATE_EVERY == 0:
                progress.add(step, evaluate(model, batches))
                name = "evaluation"
            micro_batches = MICRO_BATCHES if kind == "accumulation" else 1
            progress.add(step, training_step(model, optimizer, batches, micro_batches, length))
            notes.append({"step": name, "seconds": time.perf_counter() - begin, "figures": figures()})
    if args.json:
        train_gpt.write_report(args, progress, model, optimizer, device)
        report = json.loads(args.json.read_text())
        args.json.write_text(json.dumps({**report, "notes": notes}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
