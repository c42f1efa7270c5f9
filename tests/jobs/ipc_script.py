"""A job that shares small tensors with another process by torch.multiprocessing, and outgrows its budget meanwhile; run by
ipc.py. The other process, a job like it, changes the tensor, and shares one of its own."""

import argparse
import hashlib
import json
from pathlib import Path

import torch
from step_probe import read_stats, stand_in_driver

MIB = 1 << 20
BLOCKS, BLOCK_MIB, ROUNDS = 16, 8, 3
SMALL = 50_000  # elements: 200 kB, of PyTorch's own segments


def make_blocks():
    return [torch.full((BLOCK_MIB * MIB // 4,), float(i), device="cuda") for i in range(BLOCKS)]


def use(blocks):
    for block in blocks:
        block.add_(1.0)
    torch.cuda.synchronize()


def moved():
    return read_stats(stand_in_driver())["dtoh_bytes"]


def other_process(to_other, to_first):
    blocks = make_blocks()
    own = torch.zeros(SMALL, device="cuda")
    for number in range(ROUNDS):
        shared = to_other.get()
        use(blocks)
        shared.mul_(2.0).add_(blocks[number][:SMALL])
        own.copy_(shared)
        own.add_(blocks[number + 1][:SMALL])
        torch.cuda.synchronize()
        del shared
        to_first.put(own)
        to_other.get()  # the first has read it
    use(blocks)
    to_first.put(moved())
    to_other.get()


def refusal_of(tensor):
    """The words with which the tensor is refused; "" where it is shared."""
    try:
        torch.multiprocessing.reductions.reduce_tensor(tensor)
    except RuntimeError as error:
        return str(error)
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    to_other, to_first = context.Queue(), context.Queue()
    other = context.Process(target=other_process, args=(to_other, to_first))
    other.start()
    blocks = make_blocks()
    small = torch.arange(SMALL, dtype=torch.float32, device="cuda")
    made, left = hashlib.sha256(), []
    for number in range(ROUNDS):
        use(blocks)
        small.add_(blocks[number][:SMALL])
        to_other.put(small)
        back = to_first.get()
        use(blocks)
        small.add_(back)
        made.update(small.cpu().numpy().tobytes())
        made.update(back.cpu().numpy().tobytes())
        del back
        to_other.put("read")
        left.append(moved())
    report = {"hash": made.hexdigest(), "left": left, "left_there": to_first.get(), "refusal": refusal_of(blocks[0])}
    to_other.put("end")
    other.join()
    report["status_there"] = other.exitcode
    args.json.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
