"""What people do: the scenes of scenes.py, each with the memory that it gets and what must be seen."""

import dataclasses
import importlib.util
import os
import shutil

import harness

PAGES, ERRORS, REFUSAL = "scene_page.py", "error_phases.py", "after_refusal.py"
NOBODY = 65534


@dataclasses.dataclass(frozen=True)
class Scene:
    """Sizes in MiB."""

    name: str
    pages: tuple = ()  # of scenes/, in one process; empty: one of the same name
    script: str = PAGES
    gpu: int = 160  # SPILLWAY_GPU_MEMORY
    device: int | None = None  # the device's memory, where it is not the budget
    host: int = 48
    disk: int | None = None  # None: what the file system has; 0: no disk
    native: int | None = None  # memory of native's device where memory ends; None: more than enough
    limits: tuple = ()  # of prlimit
    ordinary_user: bool = False
    environment: tuple = ()
    counted: tuple = ()  # Spillway's figures that must not be 0
    spills: bool = True  # False: what fits the GPU stays there, and nothing else can be
    needs: str | None = None  # a package of tests/third_party; where it is missing the scene is skipped
    nightly: bool = False  # not in the short form
    policy: str = "plan"  # in the short form; the long one has both
    arguments: tuple = ()  # of the script, instead of pages

    def words(self):
        """What the script is called with."""
        return list(self.arguments) if self.script != PAGES else list(self.pages or (self.name,))


SCENES = (
    Scene("halve", ("halve", "finder"), gpu=192, host=128, disk=256, native=576, needs="accelerate"),
    Scene("error", script=ERRORS, environment=(("SIMCUDA_COPY_BANDWIDTH", "400MB"),)),
    Scene("interrupt", policy="lru"),
    Scene("interrupt_random", ("interrupt",), environment=(("SCENE_INTERRUPT", "random"),), nightly=True),
    Scene("exception"),
    Scene("threads", policy="lru"),
    Scene("loader"),
    Scene("empty_cache", ("empty_cache", "another_model")),
    Scene("nofile", ("train",), limits=("--nofile=64",), policy="lru"),
    Scene("memlock", ("train",), limits=("--memlock=8388608",), ordinary_user=True, policy="lru"),
    Scene("deleted"),
    Scene("encrypted", ("train",), host=0, environment=(("SPILLWAY_ENCRYPT", "on"),)),
    Scene("verified", ("train",), environment=(("SPILLWAY_VERIFY", "on"),), counted=("verified_fetches",)),
    Scene("nowhere", gpu=320, host=0, disk=0, native=304, spills=False),
    Scene("oversized", gpu=128, host=96, disk=192, native=416),
    Scene("saving", needs="transformers"),
    Scene("fits", gpu=256, host=64, policy="lru"),
    Scene("after_refusal", script=REFUSAL, gpu=256, host=64),
    Scene("exchange", gpu=256, device=320, host=128, disk=896, environment=(("SCENE_BUDGET_MIB", "256"),)),
)


def can_be_nobody(paths):
    """Whether the user nobody can read these paths; on some machines the checkout lies below a closed folder."""
    if not shutil.which("setpriv"):
        return False
    for path in paths:
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(0 if os.access(path, os.R_OK) else 1)
        if os.waitpid(pid, 0)[1] != 0:
            return False
    return True


def why_not(scene, paths):
    """Why the scene cannot run on this machine; None when it can. paths: what its processes must be able to read."""
    if scene.needs and importlib.util.find_spec(scene.needs) is None:
        return f"{scene.needs} is not installed"
    if scene.ordinary_user and os.geteuid() == 0 and not can_be_nobody([*paths, harness.HERE / PAGES]):
        return "the user nobody cannot read this checkout or its Python"
    return None


def prefix_of(scene):
    """The command that sets the scene's limits and user."""
    prefix = ["prlimit", *scene.limits] if scene.limits else []
    if scene.ordinary_user and os.geteuid() == 0:
        prefix += ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return prefix
