"""Checks that the visible top level in git has the planned files and folders and nothing else."""

import subprocess
from pathlib import Path

import common

WANTED = {"CMakeLists.txt", "README.md", "allocator", "bench", "docs", "integration", "io", "policy", "tests"}


def find_problems(root: Path):
    answer = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z"],
                            capture_output=True, text=True, check=False)  # fmt: skip
    if answer.returncode:
        return [f"git ls-files: {answer.stderr.strip()}"]
    names = {name.split("/", 1)[0] for name in answer.stdout.split("\0") if name}
    visible = {name for name in names if not name.startswith(".")}
    problems = [f"{name}: has no place at the top level" for name in sorted(visible - WANTED)]
    return problems + [f"{name}: is missing at the top level" for name in sorted(WANTED - visible)]


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
