"""Checks that nothing includes upward: integration -> allocator -> {io, policy}; simcuda is used by itself and tests.

Also: inside a layer the folders of a table keep to their order, policy stays pure (no CUDA, files, threads, clocks), only integration reads the environment, and includes are
written from the root of the checkout.
"""

import re
from pathlib import Path

import common

ALLOWED = {
    "policy": {"policy"},
    "io": {"io"},
    "allocator": {"allocator", "io", "policy"},
    "integration": {"integration", "allocator", "io", "policy"},
    "bench": {"bench", "tests", "integration", "allocator", "io", "policy"},
    "tests": {"tests", "integration", "allocator", "io", "policy"},
}
# Folders inside a layer: each may include of the others in this table only those in its row.
FOLDERS = {
    "allocator/residency/state": set(),
    "allocator/residency/transfer": {"allocator/residency/state"},
    "allocator/residency/plan": {"allocator/residency/state", "allocator/residency/transfer"},
    "allocator/residency": {"allocator/residency/state", "allocator/residency/transfer", "allocator/residency/plan"},
}
IMPURE = re.compile(
    r"cuda.*|cufile.*|fstream|iostream|cstdio|filesystem|thread|mutex|condition_variable|future|atomic|chrono|ctime|"
    r"unistd\.h|fcntl\.h|sys/.*|pthread\.h|dlfcn\.h|absl/(time|synchronization)/.*|tbb/.*|oneapi/.*"
)
INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]', re.MULTILINE)
READS_ENVIRONMENT = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
SIMCUDA = "integration/simcuda"


def is_simcuda(path):
    return path.as_posix().startswith(SIMCUDA + "/")


def folder_of(path):
    """The innermost folder of the table that the file lies in, or None."""
    inside = [folder for folder in FOLDERS if path.startswith(folder + "/")]
    return max(inside, key=len, default=None)


def include_problem(root, path, quoted, target):
    """What is wrong with one #include, or None."""
    room = path.parts[0]
    if room == "policy" and IMPURE.fullmatch(target):
        return f"policy is pure, but includes <{target}>"
    if room == "io" and re.match(r"cuda", target):
        return f"io does not talk to the GPU driver, but includes {target}"
    target_room = target.split("/", 1)[0]
    if target_room not in ALLOWED:
        # A quoted name that lies beside the file hides its room; ours are written from the root.
        if quoted and (target.startswith(".") or (root / path.parent / target).is_file()):
            return f'include "{target}" from the root of the checkout'
        return None
    if target_room not in ALLOWED[room]:
        return f"{room} must not include {target_room} ({target})"
    folder, target_folder = folder_of(path.as_posix()), folder_of(target)
    if folder and target_folder and target_folder != folder and target_folder not in FOLDERS[folder]:
        return f"{folder} must not include {target_folder} ({target})"
    if target.startswith(SIMCUDA + "/") and not (is_simcuda(path) or room == "tests"):
        return f"only simcuda itself and tests may include {target}"
    return None


def file_problems(root, path):
    text = common.read(root, path)
    for match in INCLUDE.finditer(text):
        problem = include_problem(root, path, match.group(1) == '"', match.group(2))
        if problem:
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {problem}"
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    if path.parts[0] in ("policy", "io", "allocator") and READS_ENVIRONMENT.search(code):
        yield f"{path}: only integration reads the environment"


def link_problems(root, path):
    """CMake lists outside simcuda and tests must not name a simcuda target or folder."""
    for number, line in enumerate(common.read(root, path).splitlines(), 1):
        code = line.split("#", 1)[0]
        if re.search(r"\bsimcuda", code) and not re.fullmatch(r"\s*add_subdirectory\(simcuda\)\s*", code):
            yield f"{path}:{number}: the product must not depend on simcuda"


def find_problems(root: Path):
    problems = [p for path in common.source_files(root) for p in file_problems(root, path)]
    for room in common.ROOMS:
        for path in sorted((root / room).rglob("CMakeLists.txt")):
            inside = path.relative_to(root)
            if not is_simcuda(inside):
                problems += link_problems(root, inside)
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
