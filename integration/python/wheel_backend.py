"""Packs Spillway's Python files and the libraries of the finished build into a wheel (PEP 517).

It compiles nothing and needs no other package, so that installing works offline. The libraries come from build/lib of
the checkout that this file lies in; SPILLWAY_BUILD_LIB names another folder. Nothing is written into the checkout.
"""

import base64
import hashlib
import os
import platform
import re
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The names of our settings, which the start-up hook looks up.
SETTINGS = HERE.parent / "settings" / "settings.def"
REQUIRED = ["libspillway.so", "libspillway_engine.so"]


def _project(key):
    """A string of pyproject.toml's [project] table (tomllib came only with Python 3.11)."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE).group(1)


def _library_dir():
    return Path(os.environ.get("SPILLWAY_BUILD_LIB") or HERE.parent.parent / "build" / "lib")


def _libraries():
    """The product's libraries; the stand-ins for a GPU (build/lib/simcuda) stay out."""
    folder = _library_dir()
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise SystemExit(
            f"spillway: {' and '.join(missing)} not found in {folder}. Build first: "
            "`cmake -S . -B build -G Ninja && ninja -C build` in the checkout, or name the folder of the built "
            "libraries in SPILLWAY_BUILD_LIB."
        )
    return sorted(path for path in folder.iterdir() if ".so" in path.suffixes and path.is_file())


def _metadata():
    lines = ["Metadata-Version: 2.1"]
    for field, key in [("Name", "name"), ("Version", "version"), ("Summary", "description")]:
        lines.append(f"{field}: {_project(key)}")
    lines += [f"Requires-Python: {_project('requires-python')}", "License: Apache-2.0", ""]
    return "\n".join(lines).encode()


class _Wheel:
    """A zip file that keeps the record of its entries."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, date_time=(2020, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, record_name):
        self.zip.writestr(record_name, "\n".join(self.record + [f"{record_name},,", ""]))
        self.zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    libraries = _libraries()
    name, version = _project("name"), _project("version")
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"{name}-{version}.dist-info"
    file_name = f"{name}-{version}-{tag}.whl"
    wheel = _Wheel(Path(wheel_directory) / file_name)
    wheel.add("spillway_start_up.pth", (HERE / "spillway_start_up.pth").read_bytes())
    for path in sorted((HERE / "spillway").glob("*.py")):
        wheel.add(f"spillway/{path.name}", path.read_bytes())
    wheel.add(f"spillway/{SETTINGS.name}", SETTINGS.read_bytes())
    for path in libraries:
        wheel.add(f"spillway/lib/{path.name}", path.read_bytes(), 0o755)
    wheel.add(f"{info}/METADATA", _metadata())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: spillway\nRoot-Is-Purelib: true\nTag: {tag}\n".encode())
    wheel.close(f"{info}/RECORD")
    print(f"spillway: packed {', '.join(path.name for path in libraries)}", file=sys.stderr)
    return file_name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("spillway: there is no source package of the Python part alone; install from the checkout.")
