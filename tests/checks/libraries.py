"""Checks the built libraries: what each exports, by committed lists, and what each needs.

Lists lie in exports/<library>.txt, one symbol a line, one list for the libraries of all PyTorch minors; `--update`
rewrites them from the build for review.
"""

import re
import subprocess
from pathlib import Path

import common

PRELOAD = "libspillway.so"
LISTS = Path(__file__).resolve().parent / "exports"
# The preload enters every process there is, so it may need nothing but libc (and the loader, which libc brings).
LIBC = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exports(library):
    """Defined dynamic symbols, without version suffixes and the loader's own marks."""
    names = set()
    for line in tool("nm", "-D", "--defined-only", str(library)).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":
            names.add(name.split("@", 1)[0])
    return names


def dynamic(library, tag):
    return re.findall(rf"\({tag}\).*\[([^\]]*)\]", tool("readelf", "-dW", str(library)))


def list_of(library, lists):
    """The list for a library: libspillway_torch_2_11.so and its like have one in common."""
    return lists / (re.sub(r"(_torch)_\d+_\d+(\.so)$", r"\1\2", library.name) + ".txt")


def export_problems(library, lists):
    path = list_of(library, lists)
    if not path.is_file():
        return [f"{library.name}: no list {path.name} of what it may export"]
    wanted = {line.strip() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")}
    found = exports(library)
    return [f"{library.name}: exports {name}, which is not in the list" for name in sorted(found - wanted)] + [
        f"{library.name}: {name} is in the list but not exported" for name in sorted(wanted - found)]  # fmt: skip


def need_problems(library):
    needed, paths = dynamic(library, "NEEDED"), dynamic(library, "RUNPATH") + dynamic(library, "RPATH")
    problems = [f"{library.name}: a search path names simcuda: {path}" for path in paths if "simcuda" in path]
    if library.name == PRELOAD:
        problems += [f"{library.name}: needs {name}; only libc is allowed" for name in needed if name not in LIBC]
        if dynamic(library, "SONAME") != ["libcuda.so.1"]:
            problems.append(f"{library.name}: its SONAME must be libcuda.so.1")
    elif any(re.match(r"libcuda\.so|libspillway\.so", name) for name in needed):
        problems.append(f"{library.name}: must reach the driver through its table, not by NEEDED")
    return problems


def product_libraries(folder):
    return sorted(path for path in folder.glob("*.so") if path.is_file())


def find_problems(folder, lists=LISTS):
    libraries = product_libraries(folder)
    problems = [] if (folder / PRELOAD).is_file() else [f"{folder / PRELOAD} is not built"]
    for library in libraries:
        problems += export_problems(library, lists) + need_problems(library)
    return problems


def update(folder, lists=LISTS):
    lists.mkdir(exist_ok=True)
    for library in product_libraries(folder):
        list_of(library, lists).write_text("".join(f"{name}\n" for name in sorted(exports(library))))


def main(args):
    folder = args.libraries or args.root / "build" / "lib"
    if args.update:
        update(folder)
    return find_problems(folder)


if __name__ == "__main__":
    common.run_check(
        __doc__, main,
        [("--libraries", {"type": Path, "help": "folder of the built libraries"}),
         ("--update", {"action": "store_true", "help": "rewrite the lists from the build"})],
    )  # fmt: skip
