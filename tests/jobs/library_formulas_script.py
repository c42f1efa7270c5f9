"""Formulas of libraries, at each of 20 allocations of 16 MiB, and after some were freed. For library_formulas.py."""

import json

import spillway
import torch

BLOCK = 16 << 20


def figures():
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(), "free": free, "total": total,
        "active": stats["active_bytes.all.current"], "most_reserved": torch.cuda.max_memory_reserved(),
        "most_allocated": torch.cuda.max_memory_allocated(),
    }  # fmt: skip


FORMULAS = {
    # native's own promise
    "allocated <= active <= reserved": lambda f: f["allocated"] <= f["active"] <= f["reserved"],
    "reserved <= its peak": lambda f: f["reserved"] <= f["most_reserved"] and f["most_allocated"] <= f["most_reserved"],
    "free <= total": lambda f: 0 <= f["free"] <= f["total"],
    # transformers (caching_allocator_warmup) and accelerate (get_max_memory) of what a model may take
    "free + reserved - allocated >= the next block": lambda f: f["free"] + f["reserved"] - f["allocated"] >= BLOCK,
    # fragmentation as fairchem and others log it
    "0 <= (reserved - allocated) / reserved <= 1": lambda f: 0 <= (f["reserved"] - f["allocated"]) / max(1, f["reserved"]) <= 1,
    # ComfyUI (get_free_memory)
    "free + reserved - active >= 0": lambda f: f["free"] + f["reserved"] - f["active"] >= 0,
}

kept, seen = [], []
for i in range(20):
    kept.append(torch.full((BLOCK // 4,), float(i), device="cuda"))
    torch.cuda.synchronize()
    seen.append(figures())
del kept[::2]
seen.append(figures())
assert [t[0].item() for t in kept] == [float(i) for i in range(1, 20, 2)]
seen.append(figures())
print("RESULT", json.dumps({"formulas": {name: all(map(holds, seen)) for name, holds in FORMULAS.items()},
                            "figures": seen, "spilled": spillway.stats()["spilled_bytes"] > 0}), flush=True)  # fmt: skip
