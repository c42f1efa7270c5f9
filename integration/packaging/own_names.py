"""Gives what the wheel has of abseil names that no other copy has.

A process may have an abseil of another release for all to see; the loader would take its functions for ours, since C++ names
have no release in them (Debian's abseil has no inline namespace). So its dynamic symbols get a prefix, in the copies and in what
uses them alike. Called by make_wheel.py; raises what the tools raise.
"""

import re
import shutil
import subprocess

PREFIX = "spillway_"
COMMON = re.compile(r"4absl|Absl")
COPIED = re.compile(r"/\S*/libabsl\S*\.so\S*")


def symbols(path):
    """Names in its dynamic symbol table, without versions, defined or not."""
    shown = subprocess.run(["nm", "-D", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@", 1)[0] for line in shown.splitlines()}


def common_symbols(path):
    """Those of abseil that another copy in the process could be taken for."""
    return {name for name in symbols(path) if COMMON.search(name) and not name.startswith(PREFIX)}


def copy_libraries(users, folder):
    """Copies of the shared libraries of abseil that `users` need; the paths of the copies."""
    folder.mkdir()
    shown = subprocess.run(["ldd", *map(str, users)], capture_output=True, text=True, check=True).stdout
    return [shutil.copy(path, folder) for path in sorted(set(COPIED.findall(shown)))]


def rename(paths, patchelf, folder):
    names = sorted(set().union(*map(common_symbols, paths)))
    table = folder / "names.txt"
    table.write_text("".join(f"{name} {PREFIX}{name}\n" for name in names))
    for path in paths:
        subprocess.run([patchelf, "--rename-dynamic-symbols", table, path], check=True)
