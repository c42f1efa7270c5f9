"""16 tensors of 30 MiB fit; then one of 150 MiB comes and goes; then 16 fit again, and hold what was put into them."""

import torch

MIB = 1 << 20
COUNT = 16


def fill():
    """As many as fit, up to 16, and whether each holds its own number."""
    held = []
    try:
        for number in range(COUNT):
            held.append(torch.full((30 * MIB // 4,), float(number), device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass
    for tensor in held:
        tensor += 1
    return [len(held), all(bool(tensor.min() == number + 1) for number, tensor in enumerate(held))]


def main(scene):
    seen = fill()
    large = torch.full((150 * MIB // 4,), 3.0, device="cuda")
    large += 1
    seen.append(large.sum().item())
    del large
    seen += fill()
    torch.cuda.empty_cache()
    return seen + fill(), {}
