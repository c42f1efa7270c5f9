"""Two models in two threads, each on a stream of its own in the second half."""

import threading

import small
import torch

STEPS = 3


def train(seed, result):
    try:
        model, optimizer = small.Model(3).cuda(), None
        model.load_state_dict(result.pop("start"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        series = small.batches(seed)
        result["losses"] = [small.step(model, optimizer, next(series)).item() for _ in range(STEPS)]
        with torch.cuda.stream(torch.cuda.Stream()):
            result["losses"] += [small.step(model, optimizer, next(series)).item() for _ in range(STEPS)]
            result["state"] = [model.state_dict(), optimizer.state_dict()]
            torch.cuda.current_stream().synchronize()
    except Exception as error:  # one thread's end must not be lost
        result["losses"] = [type(error).__name__, str(error)]


def start(seed):
    """Random numbers are the process's, so the models begin before the threads do."""
    torch.manual_seed(seed)
    return {"start": small.Model(3).state_dict()}


def main(scene):
    seeds = (scene.seed, scene.seed + 100)
    results = [start(seed) for seed in seeds]
    threads = [threading.Thread(target=train, args=pair) for pair in zip(seeds, results)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [loss for result in results for loss in result["losses"]]
    return seen, {f"thread {i}": result.get("state") for i, result in enumerate(results)}
