"""The start-up hook of every Python process whose allocator configuration names spillway.

spillway_start_up.pth calls it before any other module is imported. It loads libspillway.so into the global scope, so that
PyTorch finds it as its CUDA driver library. The library itself does the rest. A failure here costs one line on standard error
and never the process.
"""

import os
import re
import sys

# In the order in which the library reads them: for a key in both, the later one counts.
PYTORCH_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Where the library keeps the whole text for child processes, once it has taken our entries out of PyTorch's variables.
KEPT_VARIABLE = "SPILLWAY_ALLOC_CONF_ORIGINAL"
CONF_VARIABLES = (*PYTORCH_VARIABLES, KEPT_VARIABLE)
EXIT_NOT_SERVED = 2


def settings_table():
    """The text of settings.def, which the wheel carries and a checkout has."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.path.join(here, "settings.def")
    if not os.path.isfile(path):
        path = os.path.join(here, "..", "..", "settings", "settings.def")
    with open(path, encoding="utf-8") as file:
        return file.read()


def our_keys():
    """Our names inside the configuration."""
    return re.findall(r"^SETTING\((\w+)", settings_table(), re.MULTILINE)


def path_keys():
    """Those of them whose values are paths."""
    return re.findall(r"^SETTING\((\w+),\s*(?:PathOrNone|PathOrOff|UnjudgedPath|Directories),", settings_table(), re.MULTILINE)


def file_keys():
    """Those of them whose values are paths of files, or none."""
    return re.findall(r"^SETTING\((\w+),\s*(?:PathOrNone|PathOrOff),", settings_table(), re.MULTILINE)


def split_conf(text):
    """The entries of an allocator configuration; commas inside brackets do not separate."""
    return re.findall(r"(?:\[[^\]]*\]?|[^,\[])+", text)


def entry_key(entry):
    return entry.split(":", 1)[0].strip()


def names_our_backend(text):
    return any(re.fullmatch(r"\s*backend\s*:\s*spillway\s*", entry) for entry in split_conf(text))


def without_our_entries(text):
    """What remains for PyTorch's own parser, which refuses backends and keys that it does not know."""
    if not names_our_backend(text):
        return text
    try:
        ours = {*our_keys(), "backend"}
    except OSError:  # a damaged installation: which entries are ours is not known, and PyTorch would stop at one
        return ""
    return ",".join(e for e in split_conf(text) if entry_key(e) not in ours)


def _near(word, words):
    """The one of these words that it may be meant for; "" for none."""
    import difflib  # not at the top: only a process with a wrong word pays for it

    return next(iter(difflib.get_close_matches(word.strip().lower(), words, 1, 0.75)), "")


def wrong_words():
    """What in PyTorch's variables looks as if it were meant for us and is not: a sentence each."""
    texts = {name: os.environ.get(name, "") for name in PYTORCH_VARIABLES}
    entries = [(name, entry) for name, text in texts.items() for entry in split_conf(text)]
    backends = {name: entry_value(entry) for name, entry in entries if entry_key(entry) == "backend"}
    for name, value in backends.items():
        if value not in ("spillway", "native", "cudaMallocAsync") and _near(value, ["spillway"]):
            yield f"{name} says backend:{value}, which PyTorch does not know. Spillway's is backend:spillway"
    if "spillway" not in backends.values():
        return
    for name, value in backends.items():
        if value in ("native", "cudaMallocAsync"):
            yield f"{name} says backend:{value} beside backend:spillway, and Spillway is used. Remove one of them"
    ours = our_keys()
    for name, entry in entries:
        key, equals, value = entry.partition("=")
        if equals and ":" not in key and key.strip() in ours:
            yield f"{name} says {entry.strip()}. Key and value are separated by a colon: {key.strip()}:{value.strip()}"
        elif not equals and entry_key(entry) not in (*ours, "backend") and (near := _near(entry_key(entry), ours)):
            yield f"{name} says {entry.strip()}, which Spillway does not know. Did you mean {near}?"


def switched_off():
    return os.environ.get("SPILLWAY", "").strip().lower() in ("off", "0")


def has_our_entries(text):
    try:
        ours = our_keys()
    except OSError:  # a damaged installation
        ours = ["require"]
    return names_our_backend(text) or any(entry_key(entry) in ours for entry in split_conf(text))


def entry_value(entry):
    value = entry.partition(":")[2].strip()
    return value[1:-1] if value[:1] == "[" and value[-1:] == "]" and len(value) > 1 else value


def required():
    """Whether the user wants the job to end rather than to run without us: SPILLWAY_REQUIRE, else the key `require`. As the
    library reads them: an empty variable is none, and what was kept counts only where PyTorch's variables have nothing of ours."""
    value = os.environ.get("SPILLWAY_REQUIRE", "")
    if not value:
        texts = [os.environ.get(name, "") for name in PYTORCH_VARIABLES]
        if not any(map(has_our_entries, texts)):
            texts = [os.environ.get(KEPT_VARIABLE, "")]
        values = [entry_value(e) for text in texts for e in split_conf(text) if entry_key(e) == "require"]
        value = values[-1] if values else ""
    return value.lower() not in ("", "off", "0") and not switched_off()


def already_loaded():
    """True when LD_PRELOAD (or a parent's loader) has brought the library in; a second copy would hook itself."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(line.rstrip().endswith("/libspillway.so") for line in maps)


def unserved_machine():
    """Why this kind of machine is not served; "" where it is."""
    machine = os.uname()
    if machine.machine != "x86_64":
        return f"only Linux on x86_64 is supported, this is {machine.machine}"
    if "microsoft" in machine.release.lower():
        return "WSL is not supported, only Linux with NVIDIA's own driver"
    return ""


def remove_our_entries():
    os.environ.pop(KEPT_VARIABLE, None)
    for name in PYTORCH_VARIABLES:
        rest = without_our_entries(os.environ.get(name, ""))
        if rest:
            os.environ[name] = rest
        else:
            os.environ.pop(name, None)


def load():
    if already_loaded():
        return
    if unserved_machine():
        raise OSError(unserved_machine())
    import ctypes  # not at the top: only a process that uses Spillway pays for it

    import spillway

    path = spillway.library()
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} does not exist (SPILLWAY_LIBRARY_DIR, or reinstall the package after the build)")
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    # Loaded this late it cannot see PyTorch being opened, so it takes our entries out of PyTorch's variables now.
    library.spillway_take_conf()


def run():
    try:
        if not switched_off():
            for sentence in wrong_words():
                sys.stderr.write(f"spillway: {sentence}\n")
    except OSError:  # a damaged installation: what is ours is not known, and load() may do without
        pass
    try:
        if not any(names_our_backend(os.environ.get(name, "")) for name in CONF_VARIABLES):
            return
        if switched_off():
            remove_our_entries()
        else:
            load()
    except Exception as error:  # a start-up hook must not break Python, whatever it met
        try:
            if required():
                sys.stderr.write(f"spillway: not loaded: {error}; the job ends, as SPILLWAY_REQUIRE asks\n")
                os._exit(EXIT_NOT_SERVED)  # Python catches what a start-up hook raises
            rest = "PyTorch keeps its own allocator (SPILLWAY_REQUIRE=1 ends the job instead)"
            sys.stderr.write(f"spillway: not loaded: {error}; {rest}\n")
            remove_our_entries()
        except Exception:
            return
