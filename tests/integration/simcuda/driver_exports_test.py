"""The stand-in driver exports the driver's names and simcuda_*, nothing else, and needs libc and libstdc++ only.

Usage: driver_exports_test.py LIBCUDA SOURCE_ROOT
"""
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    library, root = sys.argv[1:]
    with open(f"{root}/allocator/driver/driver_functions.def") as table:
        listed = set(re.findall(r"^DRIVER_FUNCTION\((\w+),", table.read(), re.M))
    with open(f"{root}/integration/simcuda/driver/simcuda.h") as header:
        own = set(re.findall(r"\b(simcuda_\w+)\(", header.read()))
    exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    failures = []
    for name in sorted(exported - listed - own):
        failures.append(f"exported, but neither in the table nor in simcuda.h: {name}")
    for name in sorted((listed | own) - exported):
        failures.append(f"not exported: {name}")
    dynamic = output("readelf", "-d", library)
    if "Library soname: [libcuda.so.1]" not in dynamic:
        failures.append("SONAME is not libcuda.so.1")
    if "SYMBOLIC" not in dynamic:
        failures.append("not linked with -Bsymbolic")
    allowed = re.compile(r"lib(c|m|pthread|dl|stdc\+\+|gcc_s|asan|tsan|ubsan)\.so|ld-linux")
    for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
        if not allowed.match(needed):
            failures.append(f"needs {needed}")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
