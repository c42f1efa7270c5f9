"""Random traces, for the tests that the referee judges."""

import os
import random


def write_random_trace(folder, seed, most_kernels=70, most_tensors=40):
    """A small job of the kind that the traces hold: intermediates are made before they are read, weights updated."""
    rng = random.Random(seed)
    kernels = rng.randrange(6, most_kernels)
    tensors = [(rng.randrange(1, 60) * 500_000, rng.random() < 0.3) for _ in range(rng.randrange(3, most_tensors))]
    rows = []
    for k in range(kernels):
        names = rng.sample(range(len(tensors)), min(len(tensors), rng.randrange(0, 5)))
        cut = rng.randrange(0, len(names) + 1)
        both = [t for t in names[:cut] if rng.random() < 0.3]
        workspace = rng.choice([0, 0, 0, 4_000_000, 15_000_000])
        rows.append((k, "k", rng.choice([0, 0.5, 300, 2000, 5000]), " ".join(map(str, sorted(names[:cut]))),
                     " ".join(map(str, sorted(names[cut:] + both))), workspace))
    with open(os.path.join(folder, "tensors.csv"), "w", encoding="utf-8") as file:
        file.write("tensor_id,size_bytes,persistent\n")
        file.writelines(f"{t},{size},{int(keep)}\n" for t, (size, keep) in enumerate(tensors))
    with open(os.path.join(folder, "kernels.csv"), "w", encoding="utf-8") as file:
        file.write("kernel_id,name,duration_us,inputs,outputs,workspace_bytes\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)
