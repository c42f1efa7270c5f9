"""Trains a residual network under DistributedDataParallel over gloo, to be run by torchrun: plain PyTorch."""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 1024, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=6)
    arguments = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = nn.Sequential(*(Block() for _ in range(arguments.layers))).cuda()
    model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], bucket_cap_mb=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(2 + rank)  # each rank has data of its own
    losses = []
    for _ in range(arguments.steps):
        inputs = torch.randn(BATCH, WIDTH, device="cuda")
        loss = nn.functional.mse_loss(model(inputs), inputs.roll(1, dims=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        print(f"rank {rank} step {len(losses)} loss {loss.item():.4f}", flush=True)
    (arguments.output / f"losses.{rank}.txt").write_text("\n".join(losses) + "\n")
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()["state"]}
    torch.save(state, arguments.output / f"state.{rank}.pt")
    (arguments.output / f"memory.{rank}.json").write_text(json.dumps([torch.cuda.memory_stats()]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
