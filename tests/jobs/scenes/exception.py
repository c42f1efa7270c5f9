"""An exception while bytes are on their way back, then going on: in the forward pass, in a backward hook (raised on
autograd's thread), and right behind launches of which each names what has been away for longest.
"""

import small
import torch


class Planted(Exception):
    pass


def raise_it(*_):
    raise Planted


def broken_step(model, optimizer, tokens, hook):
    """A step whose hook raises; the caller sees it after the optimizer's zero_grad."""
    handle = hook(raise_it)
    try:
        small.step(model, optimizer, tokens)
    except Planted as error:
        return type(error).__name__
    finally:
        handle.remove()
    return "no exception"


def touch_and_raise(optimizer):
    """Reads every moment of the optimizer, which the forward pass has not used, and leaves before any result is looked at."""
    try:
        total = torch.zeros((), device="cuda")
        for state in optimizer.state.values():
            total += state["exp_avg_sq"].sum()
        raise_it()
    except Planted as error:
        return type(error).__name__


def main(scene):
    model, optimizer = small.make(scene.seed)
    series = small.batches(scene.seed)
    seen = []
    for _ in range(3):
        seen.append(small.step(model, optimizer, next(series)).item())
        seen.append(broken_step(model, optimizer, next(series), model.layers[4].register_forward_hook))
        seen.append(touch_and_raise(optimizer))
        seen.append(broken_step(model, optimizer, next(series), model.layers[1].register_full_backward_hook))
    seen.append(small.step(model, optimizer, next(series)).item())
    return seen, {"model": model, "optimizer": optimizer}
