"""The stand-in runtime as a file: its name, version node, dependencies and exports, and the list of symbols that
PyTorch's wheels import, compared with the exports and with the wheel of this build.

  runtime_symbols_test.py exports LIBRARY LIST HEADER_DIRECTORY ERRORS
  runtime_symbols_test.py wheel LIST SITE_PACKAGES
Exits with 77 and a reason where there is nothing to compare with.
"""

import pathlib
import re
import subprocess
import sys

SONAME = "libcudart.so.13"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_list(path):
    """{symbol: set of PyTorch releases that import it}"""
    lines = [line.split() for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("#")]
    return {symbol: set(releases.split(",")) for symbol, releases in lines}


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def check_exports(library, symbols):
    exported = {}
    for line in run("nm", "-D", "--defined-only", library).splitlines():
        _, kind, name = line.split()
        base, _, version = name.partition("@@")
        if kind != "A":
            exported[base] = version
    unexpected = sorted(name for name in exported if not re.match(r"(cuda[A-Z]|__cuda)", name))
    check(not unexpected, f"names that are not the runtime's are exported: {unexpected}")
    unversioned = sorted(name for name, version in exported.items() if version != SONAME)
    check(not unversioned, f"exports without the version node {SONAME}: {unversioned}")
    missing = sorted(set(symbols) - set(exported))
    check(not missing, f"symbols that PyTorch imports are not exported: {missing}")
    return len(exported)


def check_dynamic_section(library):
    dynamic = run("readelf", "-dW", library)
    check(re.search(rf"SONAME.*\[{re.escape(SONAME)}\]", dynamic), f"SONAME is not {SONAME}")
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
    # An older or newer toolkit has fewer or more; those of 13.0 are the table's.
    in_table = set(re.findall(r"^RUNTIME_ERROR\((\w+),", pathlib.Path(errors).read_text(), re.M))
    check(len(in_header) > 100, "the header's errors were not found")
    check(in_table <= in_header, f"errors that the header does not have: {sorted(in_table - in_header)}")
    check(in_header <= in_table, f"errors without a name and text: {sorted(in_header - in_table)}")


def check_wheel(list_path, site_packages):
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
                if version == SONAME:
                    imported.add(name)
    if not imported:
        print(f"skipped: PyTorch {release} imports nothing from {SONAME} (a wheel without CUDA, or of another CUDA)")
        sys.exit(77)
    listed = read_list(list_path)
    check(imported <= set(listed), f"imports of PyTorch {release} that are not in the list: {imported - set(listed)}")
    of_release = {symbol for symbol, releases in listed.items() if release in releases}
    if of_release:
        check(of_release == imported, f"listed for {release} but not imported: {sorted(of_release - imported)}")
    print(f"PyTorch {release}: {len(imported)} imports, all listed")


def main():
    if sys.argv[1] == "wheel":
        check_wheel(sys.argv[2], sys.argv[3])
        return
    library, list_path, header_directory, errors = sys.argv[2:6]
    symbols = read_list(list_path)
    check(len(symbols) > 90, "the list is cut short")
    count = check_exports(library, symbols)
    check_dynamic_section(library)
    check_errors(header_directory, errors)
    print(f"{count} exports, {len(symbols)} of them required")


main()
