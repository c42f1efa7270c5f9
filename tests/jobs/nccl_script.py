"""A PyTorch job that all-reduces through kernels with the names and the launches of NCCL's. Run by nccl.py.

    nccl_script.py KERNELS arguments       live bytes are twice the budget: every collective names its buffers
    nccl_script.py KERNELS queue           the works lie in a queue that no launch shows, and what is live fits
    nccl_script.py KERNELS queue-too-much  the same, but what is live does not fit
"""

import ctypes
import json
import sys

import torch
from step_probe import stand_in_driver

MIB = 1 << 20
BLOCK = 8 * MIB // 4  # floats
BUCKET, OTHERS = 4, 20
IN_ARGUMENTS, IN_QUEUE = 0, 1


def figures():
    import spillway

    return spillway.stats()


def all_reduce(kernels, tensors, storage=IN_ARGUMENTS):
    """One launch for all of them; the driver's answer."""
    buffers = (ctypes.c_uint64 * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return kernels.nccl_all_reduce(storage, buffers, ctypes.c_uint64(len(tensors)), ctypes.c_uint64(BLOCK), stream)


def noted(kernels, tensors, storage=IN_ARGUMENTS):
    """An all-reduce, with what Spillway had evicted and pinned before and after it."""
    before = figures()
    status = all_reduce(kernels, tensors, storage)
    torch.cuda.synchronize()
    after = figures()
    return {"status": status, "evictions": [before["evictions"], after["evictions"]],
            "spilled_bytes": [before["spilled_bytes"], after["spilled_bytes"]],
            "pinned_bytes": [before["pinned_bytes"], after["pinned_bytes"]]}  # fmt: skip


def wrong(tensors, factor, first=1):
    """How many do not hold factor times their number, each by itself so that none keeps another out."""
    return sum(not bool((tensor == factor * number).all()) for number, tensor in enumerate(tensors, first))


def make(count):
    return [torch.full((BLOCK,), float(number + 1), device="cuda") for number in range(count)]


def in_arguments(kernels):
    """256 MiB on 128: buckets of four tensors, three rounds. After each the job uses others of together more than the budget:
    whatever a plan does ahead, some block has to leave before the next collective."""
    tensors = make(32)
    notes = []
    for _ in range(3):
        for at in range(0, len(tensors), BUCKET):
            notes.append(noted(kernels, tensors[at : at + BUCKET]))
            for step in range(BUCKET, BUCKET + OTHERS):
                tensors[(at + step) % len(tensors)].mul_(1.0)
            torch.cuda.synchronize()
    return {"notes": notes, "evictions": figures()["evictions"], "wrong": wrong(tensors, 8.0)}


def in_queue(kernels):
    """Some blocks are pushed out by others that go; then the collective reaches those that are out."""
    tensors = make(6)
    others = make(20)
    torch.cuda.synchronize()
    out = figures()["spilled_bytes"]
    del others
    notes = [noted(kernels, tensors, IN_QUEUE)]
    evictions = figures()["evictions"]
    others = make(20)  # evictions go on behind it
    torch.cuda.synchronize()
    return {"out_before": out, "notes": notes, "wrong": wrong(tensors, 2.0), "wrong_others": wrong(others, 1.0),
            "evictions_behind": figures()["evictions"] - evictions}  # fmt: skip


def in_queue_too_much(kernels):
    tensors = make(32)
    notes = [noted(kernels, tensors[:2], IN_QUEUE), noted(kernels, tensors[:2], IN_ARGUMENTS)]
    return {"notes": notes, "wrong": wrong(tensors[:2], 2.0) + wrong(tensors[2:], 1.0, 3)}


def main():
    torch.cuda.init()  # the driver is there from here on
    kernels = ctypes.CDLL(sys.argv[1])
    if kernels.nccl_register(stand_in_driver().simcuda_register_kernel) != 0:
        raise SystemExit("the kernels were not registered")
    scene = {"arguments": in_arguments, "queue": in_queue, "queue-too-much": in_queue_too_much}[sys.argv[2]]
    print("RESULT " + json.dumps(scene(kernels)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
