"""Tensors of 85 % of the budget: one beside many that are away; then all memory is filled and two of them are used in
turn, in both orders. Either that works, or one of the two was refused where it was allocated; a launch is never refused.

SCENE_BUDGET_MIB: the budget. What was refused differs from native, where memory does not end; that every value is right
and no launch was refused does not.
"""

import os

import torch

MIB = 1 << 20
BUDGET = int(os.environ["SCENE_BUDGET_MIB"])
LARGE = BUDGET * 85 // 100 * MIB
FILLERS = 60


def make(megabytes, number):
    """A tensor that holds `number`; None where its allocation was refused. Only the allocation is allowed to be."""
    try:
        tensor = torch.empty(megabytes * MIB // 4, device="cuda")
    except torch.cuda.OutOfMemoryError:
        return None
    return tensor.fill_(number)


def right(tensor, number):
    return bool((tensor.min() == number) & (tensor.max() == number))


def beside(seen):
    others = [make(30, i) for i in range(16)]
    large = make(LARGE // MIB, 100)
    everything = [tensor for tensor in (large, *others) if tensor is not None]
    for _ in range(2):
        for tensor in everything:
            tensor += 1
    seen += [len(everything), all(right(tensor, n + 2) for n, tensor in zip((100, *range(16)), everything))]


def fill(limit=FILLERS):
    """Tensors until memory ends; on native, whose memory does not, a fixed number."""
    held = []
    while len(held) < limit:
        tensor = make(24, len(held))
        if tensor is None:
            break
        held.append(tensor)
    return held


def use(larges):
    """Each of the two in turn, in place and alone in its launch."""
    for large in larges:
        large += 1


def exchange(scene, name, seen, large_first):
    larges = [make(LARGE // MIB, n) for n in (100, 200)] if large_first else []
    fillers = fill()
    if not large_first:
        del fillers[-(4 * LARGE // MIB // 24 + 1) :]  # for the two, and for what must move when they are exchanged
        larges = [make(LARGE // MIB, n) for n in (100, 200)]
    scene.figures[name] = [large is not None for large in larges] + [len(fillers)]
    there = [(large, n) for large, n in zip(larges, (100, 200)) if large is not None]
    use([large for large, _ in there])
    use([large for large, _ in reversed(there)])
    seen += [all(right(large, n + 2) for large, n in there), all(right(filler, i) for i, filler in enumerate(fillers))]


def main(scene):
    seen = []
    beside(seen)
    exchange(scene, "larges first", seen, True)
    exchange(scene, "fillers first", seen, False)
    return seen, {}
