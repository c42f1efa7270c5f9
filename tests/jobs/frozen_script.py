"""Trains a small head on a stack of frozen layers (requires_grad False) that is larger than the GPU is to be. With
Spillway loaded it notes its figures at the start of every step. Losses and the head's final bits go to --json.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch

WIDTH, LAYERS, BATCH = 1024, 24, 64
MOST_STEPS, STEPS_AFTER = 500, 6


def clean_drops(notes):
    now = notes[-1] and notes[-1]["devices"]
    return now[0]["clean_drops"] if now else 0


def figures():
    try:
        import spillway

        return spillway.stats()
    except (ImportError, RuntimeError):  # without Spillway: the run that it is compared with
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="default: until blocks are dropped clean, and some more")
    args = parser.parse_args()
    torch.manual_seed(0)
    layers = []
    for _ in range(LAYERS):
        layer = torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda").requires_grad_(False)
        layers += [layer, torch.nn.GELU()]
    head = torch.nn.Linear(WIDTH, WIDTH, device="cuda")
    front = torch.nn.Linear(WIDTH, WIDTH, device="cuda")  # gradients must pass all frozen layers
    model = torch.nn.Sequential(front, *layers, head)
    optimizer = torch.optim.AdamW([*front.parameters(), *head.parameters()], lr=1e-3, foreach=False)
    notes, losses = [], []
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    left = args.steps or MOST_STEPS
    while left > 0:
        left -= 1
        notes.append(figures())
        if not args.steps and clean_drops(notes) > 0:
            left = min(left, STEPS_AFTER)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    notes.append(figures())
    digest = hashlib.sha256()
    for value in [*front.parameters(), *head.parameters(), *(layer.weight for layer in layers[::2])]:
        digest.update(value.detach().cpu().numpy().tobytes())
    report = {"losses": losses, "state_sha256": digest.hexdigest(), "notes": notes,
              "frozen_bytes": LAYERS * WIDTH * WIDTH * 4}  # fmt: skip
    args.json.write_text(json.dumps(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
