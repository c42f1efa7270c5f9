"""What must hold of a repaired wheel. Each rule yields sentences about what is wrong; none: the wheel may be handed out.

Called by make_wheel.py with the wheel unpacked, the wheel before the repair unpacked, and what `auditwheel show --json`
says. Reads ELF files with readelf and nm; raises what they raise.
"""

import re
import subprocess

import own_names

TAG = "manylinux_2_34_x86_64"
MOST_BYTES = 6_000_000
# PyTorch brings these into the process; the repair leaves them out.
OF_PYTORCH = {"libc10.so", "libc10_cuda.so"}
OWN_RUNTIME = ("spillway/lib/libspillway_engine.so", "spillway/bin/spillway")


def _tool(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def dynamic(path, tag):
    return re.findall(rf"\({tag}\).*\[([^\]]*)\]", _tool("readelf", "-dW", str(path)))


def exports(path):
    return sorted(line.split()[-1] for line in _tool("nm", "-D", "--defined-only", str(path)).splitlines())


def search_paths(path):
    return dynamic(path, "RUNPATH") + dynamic(path, "RPATH")


def elf_files(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def policy_problems(shown):
    """`shown`: what `auditwheel show --json` printed, parsed."""
    if shown["sym_tag"] != TAG:
        yield f"its symbols are those of {shown['sym_tag']}, not of {TAG}"
    if shown.get("unsupported_isa"):
        yield "it asks for a processor beyond x86_64"
    upgrade = shown["policy_upgrades"].get(TAG, {})
    for name in sorted(set(upgrade.get("libs_to_eliminate", ())) - OF_PYTORCH):
        yield f"it needs {name}, which is outside of {TAG}"
    if upgrade.get("blacklisted_symbols"):
        yield f"it uses {upgrade['blacklisted_symbols']}, which {TAG} forbids"


def size_problems(path):
    if path.stat().st_size >= MOST_BYTES:
        yield f"{path.stat().st_size} bytes are not under {MOST_BYTES}"
    if not path.name.endswith(f"-{TAG}.whl"):
        yield f"{path.name} is not tagged {TAG}"


def preload_problems(before, after):
    """libspillway.so stands in the driver's place by its SONAME and enters every process: nothing of it may change."""
    name = "spillway/lib/libspillway.so"
    for what, read in (("SONAME", lambda path: dynamic(path, "SONAME")), ("NEEDED", lambda path: dynamic(path, "NEEDED")),
                       ("exports", exports), ("RUNPATH", search_paths)):  # fmt: skip
        if read(before / name) != read(after / name):
            yield f"libspillway.so: the repair changed its {what}: {read(before / name)} -> {read(after / name)}"
    if dynamic(after / name, "SONAME") != ["libcuda.so.1"]:
        yield "libspillway.so: its SONAME is not libcuda.so.1"
    if search_paths(after / name):
        yield f"libspillway.so: it has a search path: {search_paths(after / name)}"


def library_problems(before, after):
    """Whatever else of ours lies in the wheel: what it exports, what it needs, and that nothing is left of the symbols."""
    for path in elf_files(after):
        name = path.relative_to(after).as_posix()
        needed = dynamic(path, "NEEDED")
        if any(library.startswith("libClp") for library in needed):
            yield f"{name}: needs CLP"
        if name in OWN_RUNTIME and any(library.startswith("libstdc++") for library in needed):
            yield f"{name}: its C++ runtime is not linked in"
        if name.startswith("spillway/lib/libspillway_torch_") and "libstdc++.so.6" not in needed:
            yield f"{name}: its C++ runtime is not PyTorch's, exceptions and strings could not cross"
        if not name.startswith("spillway/lib/libspillway_torch_") and own_names.common_symbols(path):
            yield f"{name}: names {min(own_names.common_symbols(path))} as any other copy of abseil does"
        if re.search(r"\.(symtab|debug_info)\b", _tool("readelf", "-SW", str(path))):
            yield f"{name}: not stripped"
        if (before / name).is_file() and exports(before / name) != exports(path):
            yield f"{name}: the repair changed what it exports"


def graft_problems(after):
    """Copies of abseil have names of their own, so that no other copy in the process is taken for them."""
    copies = sorted(path.name for path in (after / "spillway.libs").glob("*"))
    for name in copies:
        if not re.match(r"libabsl_\w+-[0-9a-f]{8}\.so\.", name):
            yield f"spillway.libs/{name}: not a renamed copy of abseil"
        if dynamic(after / "spillway.libs" / name, "SONAME") != [name]:
            yield f"spillway.libs/{name}: its SONAME is another"
    if not any(name.startswith("libabsl_") for name in copies):
        yield "spillway.libs: abseil is missing"


def metadata_problems(after, licences):
    info = next(after.glob("spillway-*.dist-info"))
    for name in licences:
        if not (info / "licenses" / name).is_file():
            yield f"licenses/{name} is missing"
    if "spillway = spillway.command:main" not in (info / "entry_points.txt").read_text():
        yield "the command has no entry point"


def drawing_problems(after):
    """`spillway report` needs its drawing library beside the others."""
    if not (after / "spillway" / "lib" / "vega.js").is_file():
        yield "spillway/lib/vega.js is missing: integration/packaging/fetch_vega.py fetches it"


def find_problems(path, before, after, shown, licences):
    return [*size_problems(path), *policy_problems(shown), *preload_problems(before, after),
            *library_problems(before, after), *graft_problems(after), *metadata_problems(after, licences),
            *drawing_problems(after)]  # fmt: skip
