"""Checks that nothing includes upward: integration -> allocator -> {io, policy}; simcuda is used by itself and tests.

Also: folders include each other as FOLDERS says, policy stays pure (no CUDA, files, threads, clocks), only
integration/settings and the preload read the environment, and includes are written from the root of the checkout.
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
# What each folder may include beside itself and what is not ours: folders and files, as the tables of docs/design.md have
# it. The innermost folder with a row counts; one without may include all that its layer may.
FOLDERS = {
    "integration/preload": {"integration/settings/settings.def", "integration/settings/conf_file.h",
                            "integration/settings/name_distance.h", "allocator/driver/driver_functions.def",
                            "allocator/driver/driver_symbols.def"},
    "integration/hooks": {"integration/escape", "integration/preload/shim_abi.h", "allocator", "io/os"},
    "integration/escape": {"allocator", "io/os"},
    "integration/prediction": {"allocator", "policy", "io/os"},
    "integration/profile": {"policy/model", "policy/trace", "io"},
    "integration/report": {"integration/prediction", "integration/settings", "allocator", "policy", "io"},
    "integration/settings": {"io"},
    "integration/engine": {"integration/hooks", "integration/escape", "integration/prediction", "integration/profile", "integration/report",
                           "integration/settings", "integration/preload/shim_abi.h", "allocator", "policy", "io"},
    "integration/torch": {"integration/engine/spillway.h", "integration/engine/torch_release.h", "io/os"},
    "integration/cli": {"integration/settings", "io/os"},  # and its own folders
    "integration/cli/common": {"integration/settings", "policy", "io/os"},
    "integration/cli/page": {"integration/cli/common", "integration/report", "io/os"},
    "integration/cli/simulate": {"integration/cli/page", "integration/cli/common", "policy", "io/os"},
    "integration/cli/estimate": {"integration/cli/simulate", "integration/cli/page", "integration/cli/common", "policy", "io/os"},
    "integration/cli/report": {"integration/cli/simulate", "integration/cli/page", "integration/cli/common", "integration/settings",
                               "integration/engine", "integration/report", "policy", "io/os"},
    "integration/cli/doctor": {"integration/cli/common", "integration/settings", "integration/engine",
                               "integration/preload/conf_text.h", "integration/preload/driver_directories.def",
                               "allocator/driver", "io"},
    "integration/cli/job": {"integration/cli/report", "integration/cli/doctor", "integration/cli/common", "integration/settings",
                            "integration/engine", "integration/report", "io/os"},
    "integration/simcuda": {"allocator/driver"},
    "allocator/driver": {"io/os"},
    "allocator/memory": {"allocator/driver", "policy/planner/victim_index.h", "io/os"},
    "allocator/tier": {"allocator/driver", "policy/model/machine.h", "io"},
    "allocator/residency/state": {"allocator/memory", "allocator/tier", "allocator/driver", "policy", "io"},
    "allocator/residency/transfer": {"allocator/residency/state", "allocator/memory", "allocator/tier", "allocator/driver",
                                     "policy", "io/os"},
    "allocator/residency/plan": {"allocator/residency/transfer", "allocator/residency/state", "policy", "io/os"},
    "allocator/residency": {"allocator/memory", "allocator/driver", "io/os"},  # and its own folders
    "io/os": set(),
    "io/engine": {"io/os"},
    "io/store": {"io/engine", "io/os"},
    "policy/model": set(),
    "policy/trace": {"policy/model"},
    "policy/simulator": {"policy/trace", "policy/model"},
    "policy/bound": {"policy/trace", "policy/model"},
    "policy/planner": {"policy/bound", "policy/simulator", "policy/trace", "policy/model"},
    "policy/offline": {"policy/planner", "policy/bound", "policy/simulator", "policy/estimate", "policy/model"},
    "policy/estimate": {"policy/model"},
}  # fmt: skip
IMPURE = re.compile(
    r"cuda.*|cufile.*|fstream|iostream|cstdio|filesystem|thread|mutex|condition_variable|future|atomic|chrono|ctime|"
    r"unistd\.h|fcntl\.h|sys/.*|pthread\.h|dlfcn\.h|absl/(time|synchronization)/.*|tbb/.*|oneapi/.*"
)
INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]', re.MULTILINE)
READS_ENVIRONMENT = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
SIMCUDA = "integration/simcuda"
# simcuda has settings of its own, and the preload passes on what the engine reads. PyTorch tells of its variables from
# 2.6 on; before that they are read as it reads them.
ENVIRONMENT = ("integration/settings/environment.cc", "integration/preload/conf.c", "integration/torch/compat_types.h",
               SIMCUDA + "/", "tests/", "bench/")  # fmt: skip


def is_simcuda(path):
    return path.as_posix().startswith(SIMCUDA + "/")


def lies_in(name, folder):
    return name.startswith(folder + "/")


def folder_problem(path, target):
    """What is wrong with an include of ours, by the row of the innermost folder that has one; or None."""
    folder = max((f for f in FOLDERS if lies_in(path.as_posix(), f)), key=len, default=None)
    if folder is None or any(target == allowed or lies_in(target, allowed) for allowed in {folder} | FOLDERS[folder]):
        return None
    return f"{folder} must not include {target}"


def include_problem(root, path, quoted, target):
    """What is wrong with one #include, or None."""
    layer = path.parts[0]
    if layer == "policy" and IMPURE.fullmatch(target):
        return f"policy is pure, but includes <{target}>"
    if layer == "io" and re.match(r"cuda", target):
        return f"io does not talk to the GPU driver, but includes {target}"
    target_layer = target.split("/", 1)[0]
    if target_layer not in ALLOWED:
        # A quoted name that lies beside the file does not show its layer; ours are written from the root.
        if quoted and (target.startswith(".") or (root / path.parent / target).is_file()):
            return f'include "{target}" from the root of the checkout'
        return None
    if target_layer not in ALLOWED[layer]:
        return f"{layer} must not include {target_layer} ({target})"
    if problem := folder_problem(path, target):
        return problem
    if target.startswith(SIMCUDA + "/") and not (is_simcuda(path) or layer == "tests"):
        return f"only simcuda itself and tests may include {target}"
    return None


def file_problems(root, path):
    text = common.read(root, path)
    for match in INCLUDE.finditer(text):
        problem = include_problem(root, path, match.group(1) == '"', match.group(2))
        if problem:
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {problem}"
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    if not path.as_posix().startswith(ENVIRONMENT) and READS_ENVIRONMENT.search(code):
        yield f"{path}: only integration/settings and the preload read the environment"


def link_problems(root, path):
    """CMake lists outside simcuda and tests must not name a simcuda target or folder."""
    for number, line in enumerate(common.read(root, path).splitlines(), 1):
        code = line.split("#", 1)[0]
        if re.search(r"\bsimcuda", code) and not re.fullmatch(r"\s*add_subdirectory\(simcuda\)\s*", code):
            yield f"{path}:{number}: the product must not depend on simcuda"


def find_problems(root: Path):
    problems = [p for path in common.source_files(root) for p in file_problems(root, path)]
    for layer in common.LAYERS:
        for path in sorted((root / layer).rglob("CMakeLists.txt")):
            inside = path.relative_to(root)
            if not is_simcuda(inside):
                problems += link_problems(root, inside)
    return problems


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
