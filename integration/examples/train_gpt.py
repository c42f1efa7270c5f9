#!/usr/bin/env python3
"""Train a small GPT on bytes of real text: plain PyTorch, nothing else.

The script knows nothing about how device memory is managed. Started alone it needs the whole job to fit on the
device; it is the job that integration/quickstart.sh runs with less memory than that.

    python train_gpt.py --steps 20                      # on the GPU, on the Python library's own sources
    python train_gpt.py --data book.txt --json out.json # on any file, with exact losses and a hash of the result
    python train_gpt.py --save run.pt --steps 50; python train_gpt.py --resume run.pt --steps 100

Two runs with the same arguments on the same kind of device give the same bits: data order, initial weights and
dropout come from --seed, and PyTorch is asked for deterministic kernels. --json records every loss as an exact
hexadecimal float and a SHA-256 of the final parameters and optimizer state, so that runs can be compared.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import time
from pathlib import Path

# cuBLAS gives repeatable results only with a workspace of fixed size; it reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

VOCABULARY = 256  # bytes


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description="Train a small GPT on bytes of real text.")
    add = parser.add_argument
    add("--device", default="cuda", help="cuda (default), cuda:1, cpu")
    add("--data", type=Path, help="a file to train on (default: the Python standard library's sources)")
    add("--data-limit", type=int, default=4_000_000, help="use at most this many bytes of text")
    add("--width", type=int, default=512)
    add("--layers", type=int, default=6)
    add("--heads", type=int, default=8)
    add("--sequence", type=int, default=256, help="tokens (bytes) in one sample")
    add("--batch", type=int, default=8, help="samples in one forward pass")
    add("--accumulation", type=int, default=1, help="forward and backward passes for each optimizer step")
    add("--steps", type=int, default=8, help="optimizer steps, counted from the start of training")
    add("--seed", type=int, default=1)
    add("--dropout", type=float, default=0.1)
    add("--lr", type=float, default=3e-4)
    add("--clip", type=float, default=1.0, help="largest norm of the gradient; 0 switches clipping off")
    add("--optimizer-form", choices=["foreach", "fused", "plain"], default="foreach", help="form of AdamW")
    add("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16 computes under autocast")
    add("--sdpa", choices=["math", "auto"], default="math", help="attention: repeatable on every device, or PyTorch's choice")
    add("--save", type=Path, help="write a checkpoint here at the end")
    add("--save-every", type=int, default=0, metavar="N", help="and after every N steps")
    add("--resume", type=Path, help="go on from this checkpoint")
    add("--log-every", type=int, default=1, metavar="N", help="read and print the loss every N steps")
    add("--json", type=Path, help="write losses, hashes, times and memory figures here")
    args = parser.parse_args(argv)
    if args.width % args.heads:
        parser.error("--width must be a multiple of --heads")
    if min(args.layers, args.sequence, args.batch, args.accumulation, args.steps, args.log_every) < 1:
        parser.error("layers, sequence, batch, accumulation, steps and log-every must be at least 1")
    if args.save_every and not args.save:
        parser.error("--save-every needs --save")
    return args


# ---- text ------------------------------------------------------------------------------------------------------


def load_text(path, limit):
    """The training text as one tensor of bytes."""
    if path is not None:
        with path.open("rb") as file:
            text = file.read(limit)
    else:
        text = standard_library_sources(limit)
    if not text:
        raise SystemExit("There is no text to train on; name a file with --data.")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def standard_library_sources(limit):
    """The sources of the running Python's own library, in sorted order, up to `limit` bytes."""
    root = Path(sysconfig.get_paths()["stdlib"])
    pieces, size = [], 0
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue  # what is installed there differs from machine to machine
        piece = path.read_bytes()
        pieces.append(piece)
        size += len(piece)
        if size >= limit:
            break
    return b"".join(pieces)[:limit]


class Batches:
    """Random windows of the text; the generator's state is the position in the data."""

    def __init__(self, text, args, device):
        self.text, self.batch, self.sequence, self.device = text, args.batch, args.sequence, device
        if len(text) < args.sequence + 2:
            raise SystemExit(f"The text has {len(text)} bytes; a sequence of {args.sequence} needs more.")
        self.generator = torch.Generator().manual_seed(args.seed)

    def next(self):
        last_start = len(self.text) - self.sequence - 1
        starts = torch.randint(last_start + 1, (self.batch,), generator=self.generator)
        rows = torch.stack([self.text[start : start + self.sequence + 1] for start in starts.tolist()]).long()
        if self.device.type == "cuda":
            rows = rows.pin_memory()
        rows = rows.to(self.device, non_blocking=True)
        return rows[:, :-1], rows[:, 1:]


# ---- model -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """One transformer layer: attention over what came before, then a two-layer network, each added to its input."""

    def __init__(self, args):
        super().__init__()
        self.heads, self.dropout = args.heads, args.dropout
        self.attention_norm = nn.LayerNorm(args.width)
        self.query_key_value = nn.Linear(args.width, 3 * args.width)
        self.attention_out = nn.Linear(args.width, args.width)
        self.network_norm = nn.LayerNorm(args.width)
        self.network_in = nn.Linear(args.width, 4 * args.width)
        self.network_out = nn.Linear(4 * args.width, args.width)

    def attention(self, x):
        batch, sequence, width = x.shape
        qkv = self.query_key_value(x).view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.attention_out(out.transpose(1, 2).reshape(batch, sequence, width))

    def forward(self, x):
        x = x + F.dropout(self.attention(self.attention_norm(x)), self.dropout, self.training)
        hidden = F.gelu(self.network_in(self.network_norm(x)))
        return x + F.dropout(self.network_out(hidden), self.dropout, self.training)


class GPT(nn.Module):
    """A decoder-only transformer that predicts the next byte."""

    def __init__(self, args):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, args.width)
        self.positions = nn.Embedding(args.sequence, args.width)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.width)
        self.head = nn.Linear(args.width, VOCABULARY, bias=False)
        self.apply(self.initialize)

    @staticmethod
    def initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.reshape(-1, VOCABULARY).float(), targets.reshape(-1))


def make_optimizer(model, args):
    forms = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False, "fused": False}}
    return torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, **forms[args.optimizer_form])


# ---- repeatable runs and checkpoints -----------------------------------------------------------------------------


def make_repeatable(args):
    torch.manual_seed(args.seed)
    # An operation without a deterministic form stops the job; where it would only warn, fused attention takes a form
    # that is not repeatable.
    torch.use_deterministic_algorithms(True)
    # Without this, deterministic mode would also fill every fresh tensor, which hides no bug here and costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False


def save_checkpoint(path, step, model, optimizer, batches):
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "data_position": batches.generator.get_state(),
        "cpu_rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state(batches.device) if batches.device.type == "cuda" else None,
    }
    unfinished = path.with_name(path.name + ".unfinished")
    torch.save(state, unfinished)
    os.replace(unfinished, path)  # a reader never sees half a checkpoint


def load_checkpoint(path, model, optimizer, batches):
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    batches.generator.set_state(state["data_position"])
    torch.set_rng_state(state["cpu_rng"])
    if state["cuda_rng"] is not None and batches.device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda_rng"], batches.device)
    return state["step"]


def state_sha256(model, optimizer):
    """SHA-256 over all parameters and the optimizer's state, copied to the host in a fixed order."""
    digest = hashlib.sha256()

    def add(name, value):
        digest.update(name.encode())
        if isinstance(value, torch.Tensor):
            value = value.detach().cpu().contiguous()
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            digest.update(value.view(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(value).encode())

    for name, parameter in model.named_parameters():
        add(name, parameter)
        state = optimizer.state.get(parameter, {})
        for key in sorted(state):
            add(f"{name}/{key}", state[key])
    return digest.hexdigest()


# ---- training --------------------------------------------------------------------------------------------------


def train_step(model, optimizer, batches, args):
    """One optimizer step; returns the mean loss as a tensor on the device, so that nobody waits for it."""
    optimizer.zero_grad(set_to_none=True)
    total = None
    for _ in range(args.accumulation):
        tokens, targets = batches.next()
        with torch.autocast(batches.device.type, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(tokens, targets) / args.accumulation
        loss.backward()
        total = loss.detach() if total is None else total + loss.detach()
    if args.clip:
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    return total


class Progress:
    """Losses and times of the steps, read from the device every --log-every steps."""

    def __init__(self, args, device, first_step):
        self.args, self.device, self.first_step = args, device, first_step
        self.tokens_per_step = args.batch * args.sequence * args.accumulation
        self.waiting, self.losses, self.seconds = [], [], []
        self.mark = time.perf_counter()

    def add(self, step, loss):
        self.waiting.append(loss)
        if step % self.args.log_every and step != self.args.steps:
            return
        self.losses += [value.item() for value in self.waiting]  # waits for the device
        now = time.perf_counter()
        seconds = (now - self.mark) / len(self.waiting)
        self.seconds += [seconds] * len(self.waiting)
        self.mark, self.waiting = now, []
        memory = f"  peak {peak_allocated(self.device) / 2**20:.0f} MiB" if self.device.type == "cuda" else ""
        print(f"step {step:4d}/{self.args.steps}  loss {self.losses[-1]:.4f}  "
              f"{self.tokens_per_step / seconds:8.0f} tokens/s{memory}", flush=True)

    def tokens_per_s(self):
        """Over all steps but the first, which also pays for starting up."""
        seconds = self.seconds[1:] or self.seconds
        return self.tokens_per_step * len(seconds) / sum(seconds) if seconds else None


def peak_allocated(device):
    return torch.cuda.max_memory_allocated(device)


def memory_report(device):
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index  # PyTorch 2.4 wants a number
    free, total = torch.cuda.mem_get_info(index)
    stats = torch.cuda.memory_stats(device)
    return {
        "max_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "max_reserved_bytes": torch.cuda.max_memory_reserved(device),
        "max_allocated_large_bytes": stats.get("allocated_bytes.large_pool.peak"),
        "device_free_bytes": free,
        "device_total_bytes": total,
        "device_name": torch.cuda.get_device_name(device),
        "allocator_backend": torch.cuda.get_allocator_backend(),
    }


def write_report(args, progress, model, optimizer, device):
    exact = [value.hex() for value in progress.losses]
    report = {
        "arguments": {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()},
        "torch_version": torch.__version__,
        "first_step": progress.first_step + 1,
        "losses": exact,
        "losses_sha256": hashlib.sha256("\n".join(exact).encode()).hexdigest(),
        "first_loss": progress.losses[0] if progress.losses else None,
        "last_loss": progress.losses[-1] if progress.losses else None,
        "state_sha256": state_sha256(model, optimizer),
        "tokens_per_s": progress.tokens_per_s(),
        "step_seconds": progress.seconds,
        "memory": memory_report(device),
    }
    args.json.write_text(json.dumps(report, indent=2) + "\n")


def main():
    args = parse_arguments()
    device = torch.device(args.device)
    make_repeatable(args)
    model = GPT(args).to(device)
    optimizer = make_optimizer(model, args)
    batches = Batches(load_text(args.data, args.data_limit), args, device)
    done = load_checkpoint(args.resume, model, optimizer, batches) if args.resume else 0

    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters:,} parameters on {device}, {len(batches.text):,} bytes of text, AdamW ({args.optimizer_form})",
          flush=True)
    progress = Progress(args, device, done)
    with sdpa_kernel(SDPBackend.MATH) if args.sdpa == "math" else contextlib.nullcontext():
        for step in range(done + 1, args.steps + 1):
            progress.add(step, train_step(model, optimizer, batches, args))
            if args.save and (step == args.steps or (args.save_every and step % args.save_every == 0)):
                save_checkpoint(args.save, step, model, optimizer, batches)
    if args.json:
        write_report(args, progress, model, optimizer, device)


if __name__ == "__main__":
    sys.exit(main())
