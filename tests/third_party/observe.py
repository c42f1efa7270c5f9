"""Runs the main() of one job page and writes down what came out of it, without the page's help.

    python observe.py JOB --steps N --json FILE [--config FILE]

Written: hashes of the losses that main() returned, of every named piece of state that it returned and of the random
generators; optimizer steps a second; memory figures; the Hugging Face config of its model. The page itself is plain PyTorch and reports nothing.
"""

import argparse
import hashlib
import importlib.util
import json
import math
import os
import sys
import time
from pathlib import Path

# cuBLAS gives repeatable results only with a workspace of fixed size; it reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

HERE = Path(__file__).resolve().parent


def load_page(name):
    spec = importlib.util.spec_from_file_location(f"job_{name}", HERE / "jobs" / f"{name}.py")
    page = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = page  # DataLoader workers and pickled classes look it up
    spec.loader.exec_module(page)
    return page


# ---- hashes ----------------------------------------------------------------------------------------------------


def add(digest, path, value):
    """Adds `value` to the digest: tensors bit for bit with dtype and shape, containers in order, the rest as text."""
    if hasattr(value, "state_dict"):
        value = value.state_dict()
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().contiguous()
        digest.update(f"{path}:{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            add(digest, f"{path}/{key}", value[key])
    elif isinstance(value, (list, tuple)):
        for number, element in enumerate(value):
            add(digest, f"{path}/{number}", element)
    else:
        digest.update(f"{path}={value.hex() if isinstance(value, float) else repr(value)}".encode())


def sha256(value):
    digest = hashlib.sha256()
    add(digest, "", value)
    return digest.hexdigest()


def state_hashes(state):
    hashes = {name: sha256(value) for name, value in state.items()}
    hashes["random"] = sha256([torch.get_rng_state(), torch.cuda.get_rng_state()])
    return hashes


# ---- the run ---------------------------------------------------------------------------------------------------


def memory_report():
    free, total = torch.cuda.mem_get_info()
    return {
        "max_allocated_bytes": torch.cuda.max_memory_allocated(),
        "max_reserved_bytes": torch.cuda.max_memory_reserved(),
        "max_allocated_large_bytes": torch.cuda.memory_stats().get("allocated_bytes.large_pool.peak"),
        "device_free_bytes": free,
        "device_total_bytes": total,
        "allocator_backend": torch.cuda.get_allocator_backend(),
    }


class Speed:
    """Optimizer steps a second, from the end of the first one, which also pays for starting up."""

    def __init__(self):
        self.steps, self.begin = 0, None
        register_optimizer_step_post_hook(self.count)

    def count(self, *_):
        self.steps += 1
        if self.steps == 1:
            torch.cuda.synchronize()
            self.begin = time.perf_counter()

    def end(self):
        torch.cuda.synchronize()
        if self.steps < 2:
            raise SystemExit(f"{self.steps} optimizer steps were made; at least 2 are needed")
        return (self.steps - 1) / (time.perf_counter() - self.begin)


def write_config(path):
    """Writes the config file of the first Hugging Face model that is made."""
    from transformers import PreTrainedModel

    make = PreTrainedModel.__init__

    def watched(self, config, *args, **kwargs):
        if not path.exists():
            config.to_json_file(path, use_diff=False)
        return make(self, config, *args, **kwargs)

    PreTrainedModel.__init__ = watched


def make_repeatable():
    # Operations without a deterministic form warn instead of stopping the job.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # hides no bug here and costs time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--config", type=Path, help="of a page with a Hugging Face model: where its config goes")
    args = parser.parse_args()
    make_repeatable()
    if args.config:
        args.config.unlink(missing_ok=True)
        write_config(args.config)
    page = load_page(args.job)
    speed = Speed()
    losses, state = page.main(args.steps)
    steps_per_s = speed.end()
    memory = memory_report()  # before the hashes, which may need more
    hashes = state_hashes(state)
    if not losses or not all(math.isfinite(loss) for loss in losses):
        raise SystemExit(f"{args.job}: losses that are no numbers: {losses}")
    report = {
        "job": args.job,
        "arguments": {"steps": args.steps, "seed": None},
        "torch_version": torch.__version__,
        "losses": [loss.hex() for loss in losses],
        "losses_sha256": sha256(losses),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "state_hashes": hashes,
        "state_sha256": sha256(hashes),
        "optimizer_steps": speed.steps,
        "tokens_per_s": steps_per_s,  # in steps; the jobs have the same work in each
        "memory": memory,
    }
    args.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
