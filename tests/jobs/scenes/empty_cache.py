"""torch.cuda.empty_cache() in every step, at three places of it."""

import small
import torch


def main(scene):
    model, optimizer = small.make(scene.seed)
    series = small.batches(scene.seed)
    seen = []
    for _ in range(4):
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        loss = model(next(series).cuda())
        torch.cuda.empty_cache()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
        torch.cuda.empty_cache()
    return seen, {"model": model, "optimizer": optimizer}
