"""Somebody deletes the spill directory while the job runs; it goes on, and takes more memory than before."""

import shutil

import small


def main(scene):
    first, optimizer = small.make(scene.seed, 3)
    series = small.batches(scene.seed)
    seen = [small.step(first, optimizer, next(series)).item() for _ in range(3)]
    if scene.spill_folder:
        shutil.rmtree(scene.spill_folder)
    seen += [small.step(first, optimizer, next(series)).item() for _ in range(2)]
    second, other = small.make(scene.seed + 1)
    for model, its in ((second, other), (first, optimizer), (second, other)):
        seen.append(small.step(model, its, next(series)).item())
    return seen, {"first": first, "second": second, "optimizer": optimizer, "other": other}
