"""Spillway: a CUDA caching allocator for PyTorch that lets a training job outgrow its GPU.

Nothing here has to be imported by a job: naming the backend is enough (PYTORCH_CUDA_ALLOC_CONF=backend:spillway).
`python -m spillway` shows what is installed and what works on this machine.
"""

import os


def library_dir():
    """The folder of Spillway's libraries: SPILLWAY_LIBRARY_DIR if it is set, else the one of this package."""
    return os.environ.get("SPILLWAY_LIBRARY_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")


def library():
    """The path of libspillway.so, the library to load early (or to put into LD_PRELOAD)."""
    return os.path.join(library_dir(), "libspillway.so")
