"""The licence texts of what is linked into the wheel's files or lies beside them, as the Debian packages have them.

One row a component. make_wheel.py refuses to make a wheel in which one is missing.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")

# Name in the wheel -> where the text lies.
TEXTS = {
    "LICENSE": ROOT / "docs" / "LICENSE",  # Apache-2.0: ours and abseil's
    "abseil.txt": DEBIAN / "libabsl20220623" / "copyright",  # shared copies in spillway.libs
    "changes.txt": ROOT / "integration" / "packaging" / "changes.txt",  # what was done to these copies
    "liburing.txt": DEBIAN / "liburing-dev" / "copyright",  # linked in; taken under MIT
    "xxhash.txt": DEBIAN / "libxxhash-dev" / "copyright",  # compiled in; the library, not its program
    "nlohmann-json.txt": DEBIAN / "nlohmann-json3-dev" / "copyright",  # compiled in
    "cli11.txt": DEBIAN / "libcli11-dev" / "copyright",  # compiled into the command
    "vega.txt": ROOT / "integration" / "packaging" / "vega_licences.txt",  # the drawing library and what is in it
    "libstdc++.txt": DEBIAN / "gcc-12-base" / "copyright",  # linked in; its exception allows that
    "GPL-3.txt": COMMON / "GPL-3",  # what that exception is one to
}
EXPRESSION = (
    "Apache-2.0 AND BSD-2-Clause AND BSD-3-Clause AND ISC AND MIT AND Unlicense AND GPL-3.0-or-later WITH GCC-exception-3.1"
)


def present():
    """Name -> text, of those that this machine has."""
    return {name: path.read_bytes() for name, path in TEXTS.items() if path.is_file()}


def missing():
    return [name for name, path in TEXTS.items() if not path.is_file()]
