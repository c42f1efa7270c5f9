"""Trains a residual network whose layers lie on two GPUs of one process: plain PyTorch.

Activations go from cuda:0 to cuda:1 and their gradients back, as copies between the devices. The second half of each
batch's data is copied from cuda:0 on a side stream of cuda:1, with events across the devices and record_stream.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import nn

WIDTH, BATCH = 1024, 512
FIRST, SECOND = torch.device("cuda:0"), torch.device("cuda:1")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def targets_of(inputs, side):
    """The targets, computed on the second device from the inputs on the first, on a stream of their own."""
    side.wait_stream(torch.cuda.current_stream(FIRST))
    with torch.cuda.stream(side):
        targets = inputs.to(SECOND, non_blocking=True).roll(1, dims=1)
    torch.cuda.current_stream(SECOND).wait_stream(side)
    targets.record_stream(torch.cuda.current_stream(SECOND))
    inputs.record_stream(side)
    return targets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=6)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    front = nn.Sequential(*(Block() for _ in range(arguments.layers))).to(FIRST)
    back = nn.Sequential(*(Block() for _ in range(arguments.layers))).to(SECOND)
    optimizer = torch.optim.AdamW([*front.parameters(), *back.parameters()], lr=1e-3)
    side = torch.cuda.Stream(SECOND)
    losses = []
    for _ in range(arguments.steps):
        inputs = torch.randn(BATCH, WIDTH, device=FIRST)
        targets = targets_of(inputs, side)
        loss = nn.functional.mse_loss(back(front(inputs).to(SECOND)), targets)
        del inputs, targets
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        print(f"step {len(losses)} loss {loss.item():.4f}", flush=True)
    (arguments.output / "losses.0.txt").write_text("\n".join(losses) + "\n")
    state = {"front": front.state_dict(), "back": back.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    torch.save(state, arguments.output / "state.0.pt")
    memory = [torch.cuda.memory_stats(device) for device in (FIRST, SECOND)]
    (arguments.output / "memory.0.json").write_text(json.dumps(memory))


if __name__ == "__main__":
    main()
