"""What the training scripts of this folder share: arguments, repeatability, the loop, the report (that of train_gpt.py)."""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration" / "examples"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import train_gpt


def parse_arguments(name, **sizes):
    parser = argparse.ArgumentParser(prog=name)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    for size, default in sizes.items():
        parser.add_argument(f"--{size}", type=type(default), default=default)
    return parser.parse_args()


def start(args):
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    return torch.device("cuda")


def train(args, model, optimizer, loss_of_step, samples, accumulation=1, hash_state=True):
    """accumulation: losses and backward passes of a step. hash_state: not where the optimizer is no ordinary one."""
    losses, seconds = [], []
    for step in range(1, args.steps + 1):
        mark = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = 0
        for _ in range(accumulation):
            part = loss_of_step() / accumulation
            part.backward()
            loss = loss + part.detach()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - mark)
        print(f"step {step}/{args.steps}  loss {losses[-1]:.4f}", flush=True)
    exact = "\n".join(value.hex() for value in losses)
    later = seconds[1:] or seconds
    report = {
        "arguments": {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()},
        "torch_version": torch.__version__,
        "losses": [value.hex() for value in losses],
        "losses_sha256": hashlib.sha256(exact.encode()).hexdigest(),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "state_sha256": train_gpt.state_sha256(model, optimizer) if hash_state else None,
        "tokens_per_s": samples * len(later) / sum(later),
        "step_seconds": seconds,
        "memory": train_gpt.memory_report(torch.device("cuda")),
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
