"""No host memory and no disk: what fits the GPU runs, and what does not is out of memory as without Spillway."""

import halve
import small


def main(scene):
    model, optimizer = small.make(scene.seed, 2)
    series = small.batches(scene.seed)
    seen = [small.step(model, optimizer, next(series)).item() for _ in range(2)]
    found, state = halve.main(scene)
    seen += found
    seen += [small.step(model, optimizer, next(series)).item() for _ in range(2)]
    return seen, {"model": model, "optimizer": optimizer, **{f"rows {name}": value for name, value in state.items()}}
