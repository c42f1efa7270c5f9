"""A command with an /etc/spillway.conf of its own, in a mount namespace. Where the machine forbids that, `POSSIBLE` is False."""

import os
import pathlib
import shutil
import subprocess
import tempfile

# What programs read of /etc.
KEPT = ("group", "ld.so.cache", "ld.so.conf", "nsswitch.conf", "passwd")
SCRIPT = 'folder=$1; shift; mount --bind "$folder" /etc && exec "$@"'


def command_with(folder, command):
    """`command` with `folder` as /etc."""
    user = [] if os.geteuid() == 0 else ["-r"]
    return ["unshare", *user, "-m", "sh", "-c", SCRIPT, "_", str(folder), *(str(word) for word in command)]


def make_etc(text, mode=0o644):
    """A TemporaryDirectory that can stand for /etc."""
    folder = tempfile.TemporaryDirectory(prefix="spillway_etc_")
    os.chmod(folder.name, 0o755)
    for name in KEPT:
        if os.path.exists(f"/etc/{name}"):
            shutil.copy(f"/etc/{name}", folder.name)
    if os.path.isdir("/etc/alternatives"):  # libraries are links to links in there
        shutil.copytree("/etc/alternatives", f"{folder.name}/alternatives", symlinks=True)
    conf = pathlib.Path(folder.name, "spillway.conf")
    conf.write_text(text, encoding="utf-8")
    conf.chmod(mode)
    return folder


def _possible():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command_with(folder, ["/bin/true"]), capture_output=True, timeout=60, check=False)
        return done.returncode == 0


POSSIBLE = shutil.which("unshare") is not None and _possible()
