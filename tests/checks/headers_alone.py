"""Compiles every header of the rooms alone, so that none leans on what its includer happened to include before.

Flags come from compile_commands.json: those of a source in the same folder, else in the same room. With ccache the
second run costs little.
"""

import json
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common


def flags_by_folder(database, root):
    """Folder -> flags of one of its sources; more sources of one folder may differ, the first is taken."""
    flags = {}
    for entry in json.loads(database.read_text()):
        source = Path(entry["directory"], entry["file"]).resolve()
        if not source.is_relative_to(root):
            continue
        words = shlex.split(entry["command"])
        while words and ("ccache" in Path(words[0]).name or words[0] == "--"):
            words.pop(0)
        kept = [words[0]]
        skip = False
        for word in words[1:]:
            if skip or word in ("-c", "-o") or word == entry["file"]:
                skip = word == "-o"
                continue
            kept.append(word)
        language = "c" if source.suffix == ".c" else "c++"
        flags.setdefault((source.parent, language), (kept, entry["directory"]))
    return flags


def flags_for(header, flags, root):
    """The nearest folder's flags: the header's own, its parents' up to the room, then any folder of the room."""
    folder = header.parent
    while folder != root:
        if (folder, "c++") in flags:
            return flags[folder, "c++"]
        folder = folder.parent
    room = root / header.relative_to(root).parts[0]
    near = [value for (path, language), value in sorted(flags.items()) if path.is_relative_to(room) and language == "c++"]
    return near[0] if near else None


def compile_alone(header, flags, objects):
    (words, directory), name = flags, "_".join(header.parts[-3:])
    launcher = ["ccache"] if shutil.which("ccache") else []
    main = objects / f"{name}.cc"
    main.write_text(f'#include "{header}"\n#include "{header}"\n')
    command = [*launcher, *words, "-O0", "-g0", "-c", str(main), "-o", str(objects / f"{name}.o")]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def find_problems(root, build, jobs=2):
    objects = build / "headers_alone"
    objects.mkdir(exist_ok=True)
    flags = flags_by_folder(build / "compile_commands.json", root)
    headers = [root / path for path in common.source_files(root, common.ROOMS) if path.suffix == ".h"]
    work = [(header, flags_for(header, flags, root)) for header in headers]
    # A folder without compiled sources (PyTorch's, when there is none) has no flags to compile with.
    work = [(header, found) for header, found in work if found]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda item: compile_alone(*item, objects), work))
    print(f"{len(results)} of {len(headers)} headers compiled")
    problems = []
    for (header, _), result in zip(work, results):
        if result.returncode:
            problems.append(f"{header.relative_to(root)}: does not compile alone\n{result.stderr[:1500]}")
    return problems


if __name__ == "__main__":
    common.run_check(
        __doc__, lambda args: find_problems(args.root, args.build or args.root / "build"),
        [("--build", {"type": Path, "help": "the build with compile_commands.json"})],
    )  # fmt: skip
