#!/usr/bin/env python3
"""Fetches what our libraries are compiled against for the minors that versions.txt marks "headers".

    integration/torch/fetch_headers.py [MINOR...]       for example 2.4 2.6; without one, all of them

For each it takes PyTorch's wheel from PyPI with pip and keeps its headers, libc10.so and libc10_cuda.so, and the headers
of the CUDA runtime that this wheel asks for: some 70 MB in the folder of versions.txt. The wheel itself (0.5 to 0.9 GB)
is deleted before the next one comes. What is there already stays, so that a run which was ended goes on.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "integration" / "torch" / "versions.txt"
KEPT = re.compile(r"torch/(include/.*|lib/libc10(_cuda)?\.so|version\.py)|[^/]*\.dist-info/METADATA")
CUDA_HEADER = re.compile(r"nvidia/[^/]+/include/(.+)")


def rows():
    """(release, folder) of the minors of which only headers are kept."""
    lines = [line.split() for line in VERSIONS.read_text(encoding="utf-8").splitlines() if line[:1].isdigit()]
    return [(line[0], ROOT / line[1]) for line in lines if line[2:] == ["headers"]]


def minor_of(release):
    return ".".join(release.split(".")[:2])


def download(requirement, folder):
    """The one wheel of that requirement, by pip, for the Python that most releases have."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", "3.11"]
    for platform in ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"):
        command += ["--platform", platform]
    subprocess.run([*command, "-d", str(folder), requirement], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def cuda_runtime(metadata, scratch):
    """The requirement for the CUDA runtime, from the wheel's own: named there, or by the toolkit that it names."""
    found = re.search(r"^Requires-Dist: (nvidia-cuda-runtime[\w-]*) ?\(?==([\d.]*\d)", metadata, re.MULTILINE)
    if found:
        return f"{found[1]}=={found[2]}"
    toolkit = re.search(r"^Requires-Dist: cuda-toolkit\[[^]]*\]==([\d.]+)", metadata, re.MULTILINE)
    if not toolkit:
        raise SystemExit("the wheel names no CUDA runtime")
    wheel = download(f"cuda-toolkit=={toolkit[1]}", scratch / "toolkit")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        words = archive.read(name).decode()
    found = re.search(r"^Requires-Dist: (nvidia-cuda-runtime[\w-]*) ?==(\d+(?:\.\d+)*(?:\.\*)?).*extra == 'cudart'", words, re.MULTILINE)
    return f"{found[1]}=={found[2]}"


def crt_of(runtime):
    """The requirement for the headers below crt/, which come with the compiler; its patch level has numbers of its own."""
    name, major, minor = re.match(r"([\w-]+)==(\d+)\.(\d+)", runtime).groups()
    compiler = name.replace("-runtime-cu", "-nvcc-cu") if major == "12" else name.replace("-runtime", "-crt")
    return f"{compiler}>={major}.{minor},<{major}.{int(minor) + 1}"


def unpack(wheel, folder, place):
    """The members for which `place` gives a path, below `folder`. Deletes the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = place(name)
            if target is None or name.endswith("/"):
                continue
            path = folder / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(name))
    wheel.unlink()


def torch_place(name):
    if not KEPT.fullmatch(name):
        return None
    return "METADATA" if name.endswith("/METADATA") else name


def cuda_place(name):
    found = CUDA_HEADER.fullmatch(name)
    return f"cuda/include/{found[1]}" if found else None


def fetch(release, folder):
    scratch = folder.with_name(folder.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)
    unpack(download(f"torch=={release}", scratch / "wheel"), scratch, torch_place)
    runtime = cuda_runtime((scratch / "METADATA").read_text(encoding="utf-8"), scratch)
    unpack(download(runtime, scratch / "cuda-wheel"), scratch, cuda_place)
    unpack(download(crt_of(runtime), scratch / "crt-wheel"), scratch, cuda_place)
    for name in ("wheel", "cuda-wheel", "crt-wheel", "toolkit"):
        shutil.rmtree(scratch / name, ignore_errors=True)
    (scratch / "cuda-runtime.txt").write_text(runtime + "\n", encoding="utf-8")
    scratch.rename(folder)
    print(f"PyTorch {release}, {runtime}: {folder.relative_to(ROOT)}", flush=True)


def main():
    wanted = sys.argv[1:]
    unknown = [minor for minor in wanted if minor not in [minor_of(release) for release, _ in rows()]]
    if unknown:
        raise SystemExit(f"no line of {VERSIONS.name} has headers of {' '.join(unknown)}")
    for release, folder in rows():
        if (not wanted or minor_of(release) in wanted) and not folder.is_dir():
            fetch(release, folder)


if __name__ == "__main__":
    main()
