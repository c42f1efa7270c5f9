"""Checks that every header compiles alone, so that none leans on what its includer happened to include before.

A header that some compiled source includes before all else has shown it in the build already: its own source does, or
its test. The others are compiled here, with the flags of a source in the same folder, else in the same layer (from
compile_commands.json). With ccache a second run costs little.
"""

import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common

FIRST_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)$", re.MULTILINE)


def sources_of(database, root):
    """(source, its words of command, folder to run in) for each compiled source below root."""
    for entry in json.loads(database.read_text()):
        source = Path(entry["directory"], entry["file"]).resolve()
        if source.is_relative_to(root) and source.is_file():
            yield source, shlex.split(entry["command"]), entry


def first_include(text):
    """The quoted name that a source includes before any other directive, or None."""
    found = FIRST_DIRECTIVE.search(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    if found and found.group(1) == "include" and found.group(2).startswith('"'):
        return found.group(2).split('"')[1]
    return None


def shown_by_the_build(database, root):
    return {root / name for source, _, _ in sources_of(database, root) if (name := first_include(source.read_text()))}


def flags_by_folder(database, root):
    """Folder -> flags of one of its sources; more sources of one folder may differ, the first is taken."""
    flags = {}
    for source, words, entry in sources_of(database, root):
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
    """The nearest folder's flags: the header's own, its parents' up to the layer, then any folder of the layer."""
    folder = header.parent
    while folder != root:
        if (folder, "c++") in flags:
            return flags[folder, "c++"]
        folder = folder.parent
    layer = root / header.relative_to(root).parts[0]
    near = [value for (path, language), value in sorted(flags.items()) if path.is_relative_to(layer) and language == "c++"]
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
    database = build / "compile_commands.json"
    headers = [root / path for path in common.source_files(root, common.LAYERS) if path.suffix == ".h"]
    shown, flags = shown_by_the_build(database, root), flags_by_folder(database, root)
    work = [(header, flags_for(header, flags, root)) for header in headers if header not in shown]
    # A folder without compiled sources (PyTorch's, when there is none) has no flags to compile with.
    work = [(header, found) for header, found in work if found]
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda item: compile_alone(*item, objects), work))
    print(f"{len(headers)} headers: {len(shown & set(headers))} shown by the build, {len(results)} compiled")
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
