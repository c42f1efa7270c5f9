"""Checks that every header compiles alone, so that none leans on what its includer happened to include before.

A header that the compiler sees before all else has shown it in the build already. The others are compiled here, with the
flags of a source in the same folder, else in the same layer (from compile_commands.json). One compilation serves several
headers of which each includes those before it: what it finds there, it has brought itself. With ccache a second run
costs little.
"""

import json
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common

INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
FIRST_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*([^\n]*)$", re.MULTILINE)


def sources_of(database, root):
    """(source, its words of command, entry, whether it comes first) for each compiled source below root. A file that CMake
    wrote to compile several sources at once stands for each of them."""
    for entry in json.loads(database.read_text()):
        compiled = Path(entry["directory"], entry["file"]).resolve()
        if not compiled.is_relative_to(root) or not compiled.is_file():
            continue
        together = compiled.parent.name == "Unity"
        sources = [Path(name) for name in INCLUDED.findall(compiled.read_text())] if together else [compiled]
        for source in sources:
            yield source, shlex.split(entry["command"]), entry, source == sources[0]


def first_include(text):
    """The quoted name that a source includes before any other directive, or None."""
    found = FIRST_DIRECTIVE.search(re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    if found and found.group(1) == "include" and found.group(2).startswith('"'):
        return found.group(2).split('"')[1]
    return None


def shown_by_the_build(database, root):
    return {root / name for source, _, _, first in sources_of(database, root)
            if first and (name := first_include(source.read_text()))}  # fmt: skip


def flags_by_folder(database, root):
    """Folder -> flags of one of its sources; more sources of one folder may differ, the first is taken."""
    flags = {}
    for source, words, entry, _ in sources_of(database, root):
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


def headers_below(headers, root):
    """Header -> those of `headers` that it includes, itself or through others."""
    known, below = set(headers), {}

    def visit(header):
        if header not in below:
            below[header] = set()  # headers include each other in no circle: include_chains.py
            for name in INCLUDED.findall(header.read_text()):
                if (root / name) in known:
                    below[header] |= {root / name} | visit(root / name)
        return below[header]

    for header in headers:
        visit(header)
    return below


def chains_of(headers, below):
    """Lists of headers, each of which includes all those before it in its list."""
    left, chains = set(headers), []
    for header in sorted(headers, key=lambda one: (-len(below[one]), one)):
        if header not in left:
            continue
        chain = [header]
        while inner := below[chain[0]] & left - set(chain):
            chain.insert(0, max(inner, key=lambda one: (len(below[one]), one)))
        left -= set(chain)
        chains.append(chain)
    return chains


def compile_headers(headers, flags, objects):
    """What the compiler says of a source that includes these and nothing else; None when nothing is wrong."""
    (words, directory), name = flags, "_".join(headers[-1].parts[-3:])
    launcher = ["ccache"] if shutil.which("ccache") else []
    main = objects / f"{name}.cc"
    main.write_text("".join(f'#include "{header}"\n' for header in [*headers, *headers]))
    command = [*launcher, *words, "-O0", "-g0", "-c", str(main), "-o", str(objects / f"{name}.o")]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else None


def chain_problems(chain, flags, objects, root):
    if compile_headers(chain, flags, objects) is None:
        return []
    found = {header: compile_headers([header], flags, objects) for header in chain}
    return [f"{header.relative_to(root)}: does not compile alone\n{words[:1500]}" for header, words in found.items() if words]


def find_problems(root, build, jobs=2):
    objects = build / "headers_alone"
    objects.mkdir(exist_ok=True)
    database = build / "compile_commands.json"
    headers = [root / path for path in common.source_files(root, common.LAYERS) if path.suffix == ".h"]
    shown, flags = shown_by_the_build(database, root), flags_by_folder(database, root)
    # A folder without compiled sources (PyTorch's, when there is none) has no flags to compile with.
    left = [header for header in headers if header not in shown and flags_for(header, flags, root)]
    chains = chains_of(left, headers_below(headers, root))
    with ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda chain: chain_problems(chain, flags_for(chain[-1], flags, root), objects, root), chains)
        problems = [problem for found in results for problem in found]
    print(f"{len(headers)} headers: {len(shown & set(headers))} shown by the build, {len(left)} in {len(chains)} compilations")
    return problems


if __name__ == "__main__":
    common.run_check(
        __doc__, lambda args: find_problems(args.root, args.build or args.root / "build"),
        [("--build", {"type": Path, "help": "the build with compile_commands.json"})],
    )  # fmt: skip
