"""A PyTorch job that launches kernels with the names and parameters of batched torch.linalg's. Run by linalg.py.

    linalg_script.py KERNELS arange           live bytes are twice the budget: each table names one tensor's matrices
    linalg_script.py KERNELS magma            a table in pinned memory, of tensors that are out, and what is live fits
    linalg_script.py KERNELS magma-too-much   the same, but what is live does not fit
"""

import ctypes
import json
import sys

import spillway
import torch
from step_probe import stand_in_driver

BLOCK = 8 * (1 << 20) // 4  # floats
MATRICES = 4  # of a tensor
ARANGE, MAGMA, FOLLOWER = 0, 1, 2


def evictions():
    torch.cuda.synchronize()
    return spillway.stats()["evictions"]


class Kernels:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        if self.library.linalg_register(stand_in_driver().simcuda_register_kernel) != 0:
            raise SystemExit("the kernels were not registered")

    def launch(self, kind, *words):
        """The driver's answer."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return self.library.linalg_launch(kind, (ctypes.c_uint64 * 4)(*words), stream)


def make(count):
    return [torch.full((BLOCK,), float(number + 1), device="cuda") for number in range(count)]


def expected(number, times):
    """Of a tensor of make() that was halved so often, its number added to each matrix: a value for each matrix."""
    values = [float(number + 1)] * MATRICES
    for _ in range(times):
        values = [0.5 * value + at for at, value in enumerate(values)]
    return torch.tensor(values, device="cuda").unsqueeze(1)


def wrong(tensors, times):
    """How many do not hold what is foretold, each by itself so that none keeps another out."""
    return sum(not bool((tensor.view(MATRICES, -1) == expected(number, times)).all()) for number, tensor in enumerate(tensors))


def arange(kernels):
    """112 MiB on 64. Between a table's writing and its use others of together the whole budget are used."""
    tensors, around, answers = make(14), [], set()
    for _ in range(2):
        for number, tensor in enumerate(tensors):
            table = torch.empty(MATRICES, dtype=torch.int64, device="cuda")
            around.append(evictions())
            answers.add(kernels.launch(ARANGE, MATRICES, tensor.data_ptr(), tensor.nbytes // MATRICES, table.data_ptr()))
            for step in range(1, 9):
                tensors[(number + step) % len(tensors)].mul_(1.0)
            answers.add(kernels.launch(FOLLOWER, table.data_ptr(), MATRICES, BLOCK // MATRICES))
            around.append(evictions())
            del table
    return {"answers": sorted(answers), "around": around, "held": spillway.stats()["pinned_bytes"], "wrong": wrong(tensors, 2)}


def magma(kernels, count):
    """Some blocks are pushed out by others that go, where `count` is small enough; then a kernel finds them in its table."""
    tensors = make(count)
    others = make(8)
    before = evictions()
    del others
    table = torch.empty(MATRICES, dtype=torch.int64).pin_memory()
    answers = []
    for tensor in tensors[:2]:
        torch.cuda.synchronize()
        table.copy_(torch.arange(MATRICES) * (tensor.nbytes // MATRICES) + tensor.data_ptr())
        answers.append(kernels.launch(MAGMA, table.data_ptr(), MATRICES, BLOCK // MATRICES))
    between = evictions()
    others = make(8)
    return {"answers": answers, "before": before, "behind": evictions() - between, "held": spillway.stats()["pinned_bytes"],
            "wrong": wrong(tensors[:2], 0 if any(answers) else 1)}  # fmt: skip


def main():
    torch.cuda.init()  # the driver is there from here on
    scenes = {"arange": arange, "magma": lambda kernels: magma(kernels, 3), "magma-too-much": lambda kernels: magma(kernels, 14)}
    print("RESULT " + json.dumps(scenes[sys.argv[2]](Kernels(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()
