"""Spillway: a CUDA caching allocator for PyTorch that lets a training job outgrow its GPU.

A job need not import this package: it is enough to name the backend (PYTORCH_CUDA_ALLOC_CONF=backend:spillway). If you cannot
set the environment, as in a notebook, `spillway.enable(gpu_memory="20GiB")` does the same from inside.

`python -m spillway` is the command `spillway`. It runs `spillway doctor` for this Python if no subcommand is given, which
checks this machine and proposes settings. `spillway.stats()` returns the metrics of a running job, and
`spillway.last_error()` the text of the last refusal.
"""

import os

_LATER = {"enable": "activation", "NotActiveError": "engine_api", "last_error": "engine_api", "stats": "engine_api",
          "set_gpu_memory": "engine_api", "PauseResult": "pausing", "pause": "pausing", "resume": "pausing", "region": "pausing",
          "unmanaged_pool": "pools"}  # fmt: skip
__all__ = ["NotActiveError", "PauseResult", "enable", "last_error", "library", "library_dir", "pause", "region", "resume",
           "set_gpu_memory", "stats", "unmanaged_pool"]  # noqa: F822  # fmt: skip


def library_dir():
    """Returns the folder of Spillway's libraries: SPILLWAY_LIBRARY_DIR if it is set, else that of this package."""
    return os.environ.get("SPILLWAY_LIBRARY_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")


def library():
    """Returns the path of libspillway.so, the library to load early (or to put into LD_PRELOAD)."""
    return os.path.join(library_dir(), "libspillway.so")


def __getattr__(name):
    """Imports the modules that need ctypes and json when a name of theirs is first used."""
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
