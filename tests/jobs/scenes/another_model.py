"""`del model`, another model: of another size each time, with and without empty_cache between them."""

import gc

import small
import torch


def main(scene):
    seen, state = [], {}
    for number, layers in enumerate((6, 3, 8)):
        model, optimizer = small.make(scene.seed + number, layers)
        series = small.batches(scene.seed)
        seen += [small.step(model, optimizer, next(series)).item() for _ in range(2)]
        state[f"model {number}"] = {name: value.cpu() for name, value in model.state_dict().items()}
        del model, optimizer
        if number == 1:
            gc.collect()
            torch.cuda.empty_cache()
    return seen, state
