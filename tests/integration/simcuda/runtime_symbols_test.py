"""The stand-in runtime as a file: its name, version node, dependencies and exports, and the list of symbols that
PyTorch's wheels import, compared with the exports and with the wheel of this build.

  runtime_symbols_test.py exports LIBRARY LIST HEADER_DIRECTORY ERRORS
  runtime_symbols_test.py wheel LIST_13 LIST_12 SITE_PACKAGES
  runtime_symbols_test.py imports SITE_PACKAGES      prints what the wheel imports, for the lists
Exits with 77 and a reason where there is nothing to compare with.
"""

import pathlib
import re
import subprocess
import sys


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_list(path):
    """{symbol: set of PyTorch releases that import it}"""
    lines = [line.split() for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    return {symbol: set(releases.split(",")) for symbol, releases in lines}


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def check_exports(library, symbols, soname):
    exported = {}
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        base, _, version = name.partition("@@")
        if kind != "A":
            exported[base] = version
    unexpected = sorted(name for name in exported if not re.match(r"(cuda[A-Z]|__cuda)", name))
    check(not unexpected, f"names that are not the runtime's are exported: {unexpected}")
    unversioned = sorted(name for name, version in exported.items() if version != soname)
    check(not unversioned, f"exports without the version node {soname}: {unversioned}")
    missing = sorted(set(symbols) - set(exported))
    check(not missing, f"symbols that PyTorch imports are not exported: {missing}")
    return len(exported)


def check_dynamic_section(library, soname):
    dynamic = run("readelf", "-dW", library)
    check(re.search(rf"SONAME.*\[{re.escape(soname)}\]", dynamic), f"SONAME is not {soname}")
    check("SYMBOLIC" in dynamic, "not linked with -Bsymbolic")
    needed = set(re.findall(r"NEEDED.*\[(.+?)\]", dynamic))
    allowed = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2",
               "libasan.so.6", "libasan.so.8", "libubsan.so.1", "libtsan.so.2"}
    check(needed <= allowed, f"depends on {sorted(needed - allowed)}")


def check_errors(header_directory, errors):
    """Each error of the header has a row with its name, and no row is left over."""
    header = pathlib.Path(header_directory, "driver_types.h").read_text()
    enum = header[header.index("enum __device_builtin__ cudaError\n"):]
    enum = enum[: enum.index("};")]
    in_header = set(re.findall(r"^\s*(cuda\w+)\s*=\s*\d+", enum, re.M))
    version = int(re.search(r"^#define CUDART_VERSION +(\d+)", pathlib.Path(header_directory, "cuda_runtime_api.h").read_text(), re.M)[1])
    table = pathlib.Path(errors).read_text()
    for since, rows in re.findall(r"^#if CUDART_VERSION >= (\d+)(.*?)^#endif", table, re.M | re.S):
        if version < int(since):
            table = table.replace(rows, "\n")
    in_table = set(re.findall(r"^RUNTIME_ERROR\((\w+),", table, re.M))
    check(len(in_header) > 100, "the header's errors were not found")
    check(in_table <= in_header, f"errors that the header does not have: {sorted(in_table - in_header)}")
    check(in_header <= in_table, f"errors without a name and text: {sorted(in_header - in_table)}")


def read_wheel(site_packages):
    """Its release, and (SONAME, symbol) of what it imports from a CUDA runtime."""
    version_file = pathlib.Path(site_packages, "torch", "version.py")
    if not version_file.exists():
        print(f"skipped: no PyTorch in {site_packages}")
        sys.exit(77)
    release = re.search(r"__version__ = '(\d+\.\d+)", version_file.read_text()).group(1)
    imported = set()
    for folder in ("torch/lib", "nvidia", "triton"):
        for path in pathlib.Path(site_packages, folder).rglob("*.so*"):
            with open(path, "rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            for line in run("nm", "-D", "--undefined-only", str(path)).splitlines():
                name, _, version = line.split()[-1].partition("@")
                if version.startswith("libcudart.so."):
                    imported.add((version, name))
    return release, imported


def check_wheel(lists, site_packages):
    release, all_imported = read_wheel(site_packages)
    if not all_imported:
        print(f"skipped: PyTorch {release} imports nothing from a CUDA runtime (a wheel without CUDA)")
        sys.exit(77)
    sonames = {soname for soname, _ in all_imported}
    check(len(sonames) == 1 and sonames <= set(lists), f"PyTorch {release} imports from {sorted(sonames)}")
    imported = {symbol for _, symbol in all_imported}
    listed = read_list(lists[sonames.pop()])
    check(imported <= set(listed), f"imports of PyTorch {release} that are not in the list: {imported - set(listed)}")
    of_release = {symbol for symbol, releases in listed.items() if release in releases}
    if of_release:
        check(of_release == imported, f"listed for {release} but not imported: {sorted(of_release - imported)}")
    print(f"PyTorch {release}: {len(imported)} imports, all listed")


def main():
    if sys.argv[1] == "wheel":
        check_wheel({"libcudart.so.13": sys.argv[2], "libcudart.so.12": sys.argv[3]}, sys.argv[4])
        return
    if sys.argv[1] == "imports":
        release, imported = read_wheel(sys.argv[2])
        print("".join(f"{symbol} {release} {soname}\n" for soname, symbol in sorted(imported)), end="")
        return
    library, list_path, header_directory, errors = sys.argv[2:6]
    symbols = read_list(list_path)
    check(len(symbols) > 80, "the list is cut short")
    soname = pathlib.Path(library).name
    count = check_exports(library, symbols, soname)
    check_dynamic_section(library, soname)
    check_errors(header_directory, errors)
    print(f"{count} exports, {len(symbols)} of them required")


main()
