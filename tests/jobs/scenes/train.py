"""Training, and nothing else: what is around the job is the scene (few descriptors, little that may be locked)."""

import small


def main(scene):
    model, optimizer = small.make(scene.seed)
    series = small.batches(scene.seed)
    losses = [small.step(model, optimizer, next(series)).item() for _ in range(4)]
    return losses, {"model": model, "optimizer": optimizer}
