"""Packs Spillway's Python files and what the finished build made into a wheel (PEP 517).

It compiles nothing and needs no other package, so that installing works offline. Libraries come from build/lib of the
checkout that this file lies in, the command from build/wheel/bin; SPILLWAY_BUILD_LIB names another folder of libraries.
They are packed without their symbols for debuggers where `strip` is there. Nothing is written into the checkout.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import wheel_licences

HERE = Path(__file__).resolve().parent
# The names of our settings, which the start-up hook looks up.
SETTINGS = HERE.parent / "settings" / "settings.def"
# The drawing library of `spillway report`, which fetch_vega.py puts beside the libraries.
DRAWING = "vega.js"
REQUIRED = ["libspillway.so", "libspillway_engine.so"]
BUILD_FIRST = (
    "Build first: `cmake -S . -B build -G Ninja && ninja -C build` in the checkout, or name the folder of the built libraries "
    "in SPILLWAY_BUILD_LIB."
)


def _project(key):
    """A string of pyproject.toml's [project] table (tomllib came only with Python 3.11)."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE).group(1)


def _list(key):
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([^"]*)"', re.search(rf"^{key} = \[(.*?)\]", text, re.MULTILINE | re.DOTALL).group(1))


def version():
    """Of project() in the top CMakeLists.txt: the one place where it is written."""
    text = (HERE.parents[1] / "CMakeLists.txt").read_text(encoding="utf-8")
    return re.search(r"^project\(spillway VERSION ([0-9.]+)", text, re.MULTILINE).group(1)


def _library_dir():
    return Path(os.environ.get("SPILLWAY_BUILD_LIB") or HERE.parent.parent / "build" / "lib")


def _refuse_other_machines():
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise SystemExit(f"spillway: only Linux on x86_64 is supported; this is {system} on {machine}. Nothing was installed.")


def libraries(folder):
    """The product's libraries; the stand-ins for a GPU (build/lib/simcuda) stay out."""
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"spillway: {' and '.join(missing)} not found in {folder}. {BUILD_FIRST}")
    found = sorted(path for path in folder.iterdir() if ".so" in path.suffixes and path.is_file())
    if not any(path.name.startswith("libspillway_torch_") for path in found):
        raise SystemExit(
            f"spillway: {folder} has no library for any PyTorch (libspillway_torch_*.so), so what would be installed could not "
            "serve a job. Configure with a Python that has PyTorch, cmake -S . -B build -G Ninja "
            "-DSPILLWAY_PYTHON=/path/to/python, and build; integration/quickstart.sh does both."
        )
    return found


def program(folder):
    """The command that belongs to the libraries in `folder`."""
    path = folder.parent / "wheel" / "bin" / "spillway"
    if not path.is_file():
        raise SystemExit(f"spillway: {path} not found. {BUILD_FIRST}")
    return path


def _metadata():
    lines = ["Metadata-Version: 2.4", f"Name: {_project('name')}", f"Version: {version()}"]
    lines += [f"Summary: {_project('description')}", f"Requires-Python: {_project('requires-python')}"]
    lines += [f"License-Expression: {wheel_licences.EXPRESSION}"]
    lines += [f"License-File: {name}" for name in wheel_licences.present()]
    lines += [f"Keywords: {','.join(_list('keywords'))}"] + [f"Classifier: {text}" for text in _list("classifiers")]
    lines += ["Description-Content-Type: text/markdown", ""]
    return ("\n".join(lines) + "\n" + (HERE / "description.md").read_text(encoding="utf-8")).encode()


def stripped(path):
    """Its bytes, without symbols for debuggers where that can be."""
    tool = shutil.which("strip")
    if not tool:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        done = subprocess.run([tool, "--strip-unneeded", "-o", copy, path], stderr=subprocess.PIPE, check=False)
        return copy.read_bytes() if done.returncode == 0 else path.read_bytes()


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


def _add_metadata(wheel, info, tag):
    for name, text in wheel_licences.present().items():
        wheel.add(f"{info}/licenses/{name}", text)
    wheel.add(f"{info}/entry_points.txt", f"[console_scripts]\nspillway = {_project('spillway')}\n".encode())
    wheel.add(f"{info}/METADATA", _metadata())
    wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: spillway\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """config_settings: {"symbols": "keep"} packs the files byte for byte."""
    _refuse_other_machines()
    read = Path.read_bytes if (config_settings or {}).get("symbols") == "keep" else stripped
    packed, command = libraries(_library_dir()), program(_library_dir())
    name = _project("name")
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"{name}-{version()}.dist-info"
    file_name = f"{name}-{version()}-{tag}.whl"
    wheel = _Wheel(Path(wheel_directory) / file_name)
    wheel.add("spillway_start_up.pth", (HERE / "spillway_start_up.pth").read_bytes())
    for path in sorted(path for path in (HERE / "spillway").rglob("*") if path.suffix in (".py", ".pyi", ".typed")):
        wheel.add(path.relative_to(HERE).as_posix(), path.read_bytes())
    wheel.add(f"spillway/{SETTINGS.name}", SETTINGS.read_bytes())
    for path in packed:
        wheel.add(f"spillway/lib/{path.name}", read(path), 0o755)
    wheel.add("spillway/bin/spillway", read(command), 0o755)
    drawing = _library_dir() / DRAWING
    if drawing.is_file():
        wheel.add(f"spillway/lib/{DRAWING}", drawing.read_bytes())
    else:
        print(f"spillway: without {drawing}, `spillway report` of what is packed makes no page; "
              "integration/packaging/fetch_vega.py fetches it", file=sys.stderr)  # fmt: skip
    _add_metadata(wheel, info, tag)
    wheel.close(f"{info}/RECORD")
    print(f"spillway: packed {', '.join(path.name for path in packed)}", file=sys.stderr)
    return file_name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("spillway: there is no source package of the Python part alone; install from the checkout.")
