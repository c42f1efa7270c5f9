"""Interfaces of other projects, served by Spillway.

`install()` makes `import torch_memory_saver` find the module beside this one, so that programs written for that
project's calls (sglang, slime, verl and others) pause and resume by Spillway, unchanged.
"""

import sys


def install():
    """Makes `torch_memory_saver` importable, before anything has imported another one: RuntimeError otherwise."""
    from . import torch_memory_saver as ours

    if sys.modules.setdefault("torch_memory_saver", ours) is not ours:
        raise RuntimeError("another torch_memory_saver has been imported already: call spillway.compat.install() before")
