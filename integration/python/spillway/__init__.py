"""Spillway: a CUDA caching allocator for PyTorch that lets a training job outgrow its GPU.

Nothing here has to be imported by a job: naming the backend is enough (PYTORCH_CUDA_ALLOC_CONF=backend:spillway). Where the
environment is not yours to set, as in a notebook, `spillway.enable(gpu_memory="20GiB")` does the same from inside.
`python -m spillway` is the command `spillway`; alone it is `spillway doctor` for this Python: what works on this machine,
what to set. In a running job, `spillway.stats()` gives the figures of now and `spillway.last_error()` the words of the last
refusal.
"""

import os

_LATER = {"enable": "activation", "NotActiveError": "engine_api", "last_error": "engine_api", "stats": "engine_api",
          "set_gpu_memory": "engine_api", "PauseResult": "pausing", "pause": "pausing", "resume": "pausing", "region": "pausing",
          "unmanaged_pool": "pools"}  # fmt: skip
__all__ = ["NotActiveError", "PauseResult", "enable", "last_error", "library", "library_dir", "pause", "region", "resume",
           "set_gpu_memory", "stats", "unmanaged_pool"]  # noqa: F822  # fmt: skip


def library_dir():
    """The folder of Spillway's libraries: SPILLWAY_LIBRARY_DIR if it is set, else the one of this package."""
    return os.environ.get("SPILLWAY_LIBRARY_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")


def library():
    """The path of libspillway.so, the library to load early (or to put into LD_PRELOAD)."""
    return os.path.join(library_dir(), "libspillway.so")


def __getattr__(name):
    """Names whose modules cost an import of ctypes and json, only where they are used."""
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(f"spillway.{_LATER[name]}"), name)
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("spillway")
        except metadata.PackageNotFoundError:  # a checkout that is not installed
            pass
    raise AttributeError(f"module 'spillway' has no attribute '{name}'")


def __dir__():
    return sorted([*__all__, "__version__"])
