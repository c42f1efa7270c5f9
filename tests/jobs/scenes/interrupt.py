"""Ctrl-C in a step, then saving: the file holds what was there after the last whole step, and training goes on from it.

SCENE_INTERRUPT=forward: while the host is in a forward pass, the GPU somewhere behind it. random: at any moment of the
forward or backward pass, as somebody at a keyboard does it; the optimizer has not begun.
"""

import os
import signal
import threading
import time

import small
import torch

STEPS = 3


def press_in_forward(model):
    """SIGINT when the fourth layer is called: Python raises before its forward."""
    return model.layers[3].register_forward_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGINT))


class PressedAtRandom:
    """SIGINT from another thread after a moment within a step's time."""

    def __init__(self, delay):
        self.thread = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        self.thread.start()

    def remove(self):
        self.thread.join()


def interrupted_step(model, optimizer, tokens):
    """A step that never comes to its optimizer: what Ctrl-C hits is forward or backward, however long they take."""
    optimizer.zero_grad(set_to_none=True)
    for _ in range(100):
        model(tokens.cuda()).backward()
    raise AssertionError("Ctrl-C was lost")


def save(model, optimizer, path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main(scene):
    model, optimizer = small.make(scene.seed)
    series = small.batches(scene.seed)
    begin = time.monotonic()
    seen = [small.step(model, optimizer, next(series)).item() for _ in range(STEPS)]
    step_seconds = (time.monotonic() - begin) / STEPS
    at_random = os.environ.get("SCENE_INTERRUPT") == "random"
    hand = PressedAtRandom(scene.random.uniform(0, step_seconds)) if at_random else press_in_forward(model)
    try:
        interrupted_step(model, optimizer, next(series))
    except KeyboardInterrupt as error:
        seen.append(type(error).__name__)
    hand.remove()
    save(model, optimizer, scene.folder / "saved.pt")
    saved = torch.load(scene.folder / "saved.pt", map_location="cpu")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    seen += [small.step(model, optimizer, next(series)).item() for _ in range(2)]
    return seen, {"saved": saved, "model": model, "optimizer": optimizer}
