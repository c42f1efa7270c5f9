"""spillway.enable(): Spillway for this process and those that it starts, from inside a script or a notebook.

It has the effect of LD_PRELOAD or PyTorch's variable: it writes the settings into the SPILLWAY_ variables, which children
inherit, and loads libspillway.so. The driver is in the process already after `import torch`, since cuBLAS opens it. The
library then takes it over, unless it has been initialized.
"""

import contextlib
import ctypes
import difflib
import importlib.metadata
import inspect
import os
import re
import site
import sys
import threading

import spillway
from spillway import engine_api, start_up

# CUDA_ERROR_NOT_INITIALIZED, and CUDA_ERROR_NO_DEVICE: what our library answers where there is no driver.
NOT_INITIALIZED = (3, 100)
TOO_LATE = ("spillway.enable() comes too late: this process has used CUDA already (torch.cuda.is_available(), a tensor on "
            "the GPU, or another library). Call it before that; before or after `import torch` is the same")  # fmt: skip

# Values of a setting that names a file, where no file is meant: none, or refused by the check.
NO_FILE = ("", "none", "off", "0")
NO_PATH = (*NO_FILE, "on", "1")

_lock = threading.Lock()

# Libraries that end a process in which they are not the first: GCC's sanitizers, and clang's.
MUST_BE_FIRST = re.compile(r"lib(?:(?:a|t|hwa|l)san\.so|clang_rt\.(?:a|t|hwa|l)san)")


def enable(**settings):
    """Makes Spillway serve this process and its children, with these settings (docs/environment.md, in small letters).

    Values are texts as in the variables ("20GiB"), numbers, True and False, paths, or lists of paths. Settings that
    the environment gives and that are not named here stay as they are.

    Call it before the first use of CUDA, before or after `import torch`, on any thread. A further call with the same settings
    does nothing. Returns True, or False if the user has switched Spillway off (SPILLWAY=off).

    ValueError: a setting does not exist, or a value is invalid.
    RuntimeError: the call comes too late, contradicts a setting of the environment, or Spillway cannot serve this process.
    No setting is changed then.
    """
    texts = {name: _text(name, value) for name, value in settings.items() if value is not None}
    if start_up.switched_off():
        return False
    with _lock:
        library = _loaded_library()
        if library is None:
            _load(texts)
        else:
            _agree(library, texts)
    return True


# For help() and for editors. Without the list of settings it stays **settings.
with contextlib.suppress(OSError):
    enable.__signature__ = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in start_up.our_keys()])  # fmt: skip


def _text(name, value):
    known = start_up.our_keys()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(known)}"
        raise ValueError(f"spillway.enable() has no setting {name}: {hint}")
    if isinstance(value, bool) and name in start_up.path_keys():
        raise ValueError(f"spillway.enable({name}={value!r}): it takes a path, or 'none'")
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (str, int, float, os.PathLike)):
        return _independent_of_folder(name, str(os.fspath(value) if isinstance(value, os.PathLike) else value))
    if isinstance(value, (list, tuple)) and all(isinstance(part, (str, os.PathLike)) for part in value):
        return ",".join(os.fspath(part) for part in value)
    raise ValueError(f"spillway.enable({name}=...) takes a text, a number, True or False, a path or a list of paths, not {value!r}")


def _independent_of_folder(name, text):
    """Makes paths absolute, for a job that changes its folder before it uses CUDA, and for its children."""
    return os.path.abspath(text) if name in start_up.file_keys() and text.strip().lower() not in NO_PATH else text


def variable(name):
    return "SPILLWAY_" + name.upper()


def _same(name, one, other):
    if name in start_up.path_keys():  # paths are told apart by case and by the spaces in them
        one, other = (re.sub(r"\s*([,;])\s*", r"\1", text.strip()) for text in (one, other))
        one, other = (_independent_of_folder(name, text) for text in (one, other))
        return one == other or (one.lower() in NO_FILE and other.lower() in NO_FILE)
    return re.sub(r"\s", "", one).lower() == re.sub(r"\s", "", other).lower()


def _disagree(name, text, there, source):
    return RuntimeError(f"spillway.enable({name}={text!r}) contradicts {source}, which says {there!r}: remove one of them")


# ---- A library that is there already: by LD_PRELOAD, by PyTorch's variable, by an earlier call.


def _loaded_library():
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.rstrip("\n").split(maxsplit=5)[-1] for line in maps if line.rstrip().endswith("/libspillway.so")}
    if not paths:
        return None
    library = ctypes.CDLL(min(paths), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    for function in (library.spillway_setting, library.spillway_setting_source):
        function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_char_p
    return library


def _agree(library, texts):
    missing = {}
    for name, text in texts.items():
        there = library.spillway_setting(name.encode())
        if there is None:
            missing[name] = text
        elif not _same(name, os.fsdecode(there), text):
            raise _disagree(name, text, os.fsdecode(there), library.spillway_setting_source(name.encode()).decode())
    if not _initialized(library):
        _check(texts)
        _take_over(library)  # otherwise an earlier call that failed here would count as done
        os.environ.update({variable(name): text for name, text in missing.items()})
        return
    try:
        engine_api.stats()
    except engine_api.NotActiveError as error:
        raise RuntimeError(f"Spillway does not serve this process, and a line on standard error says why: {error}") from error
    if missing:
        name, text = next(iter(missing.items()))
        raise RuntimeError(f"spillway.enable({name}={text!r}) comes too late: Spillway runs already, without that setting")


# ---- The first call.


def _load(texts):
    if start_up.unserved_machine():
        raise RuntimeError(f"spillway.enable(): {start_up.unserved_machine()}")
    for name, text in texts.items():
        there = os.environ.get(variable(name))
        if there and not _same(name, there, text):
            raise _disagree(name, text, there, variable(name))
    path = spillway.library()
    if not os.path.isfile(path):
        raise RuntimeError(f"{path} does not exist (SPILLWAY_LIBRARY_DIR, or reinstall the package after the build)")
    _check_path(path)
    _check_torch(path)
    _check(texts)
    driver = _mapped_driver()
    if driver is not None and _initialized(driver):
        raise RuntimeError(TOO_LATE)
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise RuntimeError(str(error)) from error
    library.spillway_take_conf()
    _take_over(library)
    os.environ.update({variable(name): text for name, text in texts.items()})
    _pass_to_children(path)


def _take_over(library):
    why = ctypes.create_string_buffer(512)
    library.spillway_rebind.restype = ctypes.c_long
    if library.spillway_rebind(why, ctypes.c_size_t(len(why))) < 0:
        raise RuntimeError(f"Spillway cannot take over the CUDA driver that is in this process: {why.value.decode()}")


def _mapped_driver():
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            path = line.rstrip("\n").split(maxsplit=5)[5:]
            if path and os.path.basename(path[0]).startswith("libcuda.so"):
                return ctypes.CDLL(path[0], mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    return None


def _initialized(driver):
    return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) not in NOT_INITIALIZED


def _check_torch(path):
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return  # it may be found by PYTHONPATH alone; the engine looks again
    minor = ".".join(version.split(".")[:2])
    there = re.findall(r"libspillway_torch_(\d+)_(\d+)\.so", " ".join(os.listdir(os.path.dirname(path))))
    there.sort(key=lambda number: [*map(int, number)])
    served = [".".join(number) for number in there]
    if minor not in served:
        raise RuntimeError(f"this Spillway supports PyTorch {', '.join(served) or '(none)'}, and {version} is installed")


def _hooked():
    """Returns whether spawned children load the library by the start-up hook. Otherwise LD_PRELOAD has to name it."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = home in [os.path.abspath(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())]
    return installed and os.path.isfile(os.path.join(home, "spillway_start_up.pth")) and not sys.flags.no_site


def _check_path(path):
    if not _hooked() and re.search("[ :]", os.path.abspath(path)):
        raise RuntimeError(f"spillway.enable(): {os.path.abspath(path)}: the loader splits LD_PRELOAD, which brings it to child "
                           "processes, at spaces and colons; install Spillway to a path without them")  # fmt: skip


def _pass_to_children(path):
    if _hooked():
        os.environ.setdefault(start_up.KEPT_VARIABLE, "backend:spillway")
    else:
        os.environ["LD_PRELOAD"] = _preload(os.path.abspath(path), os.environ.get("LD_PRELOAD", ""))


def _preload(ours, before):
    """Returns LD_PRELOAD with our library in front, but behind libraries that must be first."""
    entries = [entry for entry in re.split("[ :]", before) if entry]
    place = max((i + 1 for i, entry in enumerate(entries) if MUST_BE_FIRST.match(os.path.basename(entry))), default=0)
    return ":".join([*entries[:place], ours, *entries[place:]])


# ---- The engine's check at the start, with the messages that a wrong variable gets.


def _check(texts):
    path = os.path.join(spillway.library_dir(), engine_api.ENGINE)
    try:
        check = ctypes.CDLL(path).spillway_engine_check_settings
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"Spillway's engine cannot be loaded: {error}") from error
    pairs = ctypes.c_char_p * len(texts)
    why = ctypes.create_string_buffer(2048)
    names, values = pairs(*(name.encode() for name in texts)), pairs(*(os.fsencode(text) for text in texts.values()))
    if check(names, values, ctypes.c_size_t(len(texts)), why, ctypes.c_size_t(len(why))) != 0:
        raise ValueError(why.value.decode("utf-8", "replace"))
