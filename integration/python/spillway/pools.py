"""A pool of PyTorch whose memory Spillway leaves alone."""

import os

_LIBRARY = "libspillway_torch_"


def _library():
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[5:]
            if path and os.path.basename(path[0]).startswith(_LIBRARY):
                return path[0]
    return None


def unmanaged_pool():
    """Returns a torch.cuda.MemPool whose memory comes from the driver and stays on the GPU.

    It is for tensors that are shared with other processes or registered with a library: allocate them inside
    `with torch.cuda.use_mem_pool(pool):`. The pool counts against the budget. Keep it as long as its tensors.
    """
    import torch

    library = _library()
    if library is None:  # Spillway does not serve this process: all pools are PyTorch's
        return torch.cuda.MemPool()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "spillway_driver_allocate", "spillway_driver_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    pool.spillway_allocator = allocator  # it has to live as long
    return pool
