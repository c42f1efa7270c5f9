"""Checks that names which pages quote in backticks exist: types and constants, files and folders, variables, options, shards.

- A type (`ChunkPool`) or constant (`kMaxAge`) must be a word of a source.
- A path that begins with a folder of the tree, from the top or from the page's folder, must be there, or match if it has a
  pattern; so must a file of C or C++.
- A variable of Spillway's must be a setting or stand in a source by its whole name, one of the stand-in's in a string there.
- An option of a program, in backticks or in a fence, must stand in a source, or be a setting.
- A shard behind tests/nightly.sh must be in its list.

Free are the changelog, decisions, the archive, fences except for options and shards, and names of other projects, which
NAMES_OF_OTHERS lists. A row of it that is not needed any more is a problem.
"""

import fnmatch
import re
from pathlib import Path

import common
import doc_format
import test_table

FREE = ("docs/changelog.md", "docs/decisions/", "docs/results/archive/")
SOURCES = (*common.SOURCE_ENDINGS, ".py", ".pyi", ".sh", ".txt", ".cmake", ".cu", ".S", ".toml", ".json", ".inc")
TOP_FOLDERS = (*common.LAYERS, "tests", "bench", "docs")
C_FILES = (".h", ".cc", ".c", ".def", ".cu", ".S", ".inc")

SPAN = re.compile(r"`([^`]+)`")
TYPE = re.compile(r"(?<![\w./-])(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|k[A-Z][A-Za-z0-9]+)(?![\w-]|\.\.\.)")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(TOP_FOLDERS)})/[\w./*{{}},-]*")
FILE = re.compile(rf"[\w.*-]+(?:{'|'.join(map(re.escape, C_FILES))})")
VARIABLE = re.compile(r"\b(SPILLWAY|SIMCUDA)_([A-Z][A-Z0-9_]*)\b")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
SHARDS = re.compile(r"tests/nightly\.sh((?: [a-z][a-z0-9.-]+)+)")
WORD_STRING = re.compile(r'"([A-Z][A-Z0-9_]*)')
SETTING = re.compile(r"^SETTING\(([a-z0-9_]+)", re.MULTILINE)
PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")  # tests/policy/g10/TRACE

# Name -> the project that it belongs to.
NAMES_OF_OTHERS = {
    "cuda.h": "CUDA's header",
}


class Tree:
    """The words, paths and options of the sources."""

    def __init__(self, root):
        files = [p.relative_to(root) for p in root.rglob("*") if p.is_file()]
        files = [p for p in files if not common.SKIPPED_FOLDERS & set(p.parts)]
        self.paths = {p.as_posix() for p in files} | {q.as_posix() for p in files for q in p.parents}
        self.stems = {p.with_suffix("").as_posix() for p in files}
        self.names = {p.name for p in files}
        nightly = root / "tests/nightly.sh"
        self.shards = set(test_table.shards(nightly.read_text(encoding="utf-8"))) if nightly.is_file() else set()
        self.words, self.options, self.strings, self.settings = set(), set(), set(), set()
        for path in files:
            # What only a check names is not there.
            if path.suffix in SOURCES and path.parent != Path("tests/checks"):
                text = common.read(root, path)
                self.words.update(re.findall(r"\w+", text))
                self.options.update(OPTION.findall(text))
                self.strings.update(WORD_STRING.findall(text))
            if path.name == "settings.def":
                self.settings.update(SETTING.findall(common.read(root, path)))

    def has_path(self, path):
        path = path.rstrip("/.,")
        for pattern in expanded(path):
            if pattern not in self.paths and pattern not in self.stems and not fnmatch.filter(self.paths, pattern):
                return False
        return True


def expanded(path):
    """A path with {h,cc}, once for each."""
    found = re.search(r"\{([^{}]*)\}", path)
    return [path] if not found else [path[: found.start()] + part + path[found.end() :] for part in found.group(1).split(",")]


def names_of(text):
    """(line, kind, name) of what a page quotes."""
    prose = dict(doc_format.prose_lines(text))
    for number, line in enumerate(text.splitlines(), 1):
        for span in SPAN.findall(prose.get(number, "")):
            yield from ((number, "type", name) for name in TYPE.findall(span))
            yield from ((number, "path", name) for name in PATH.findall(span) if not PLACEHOLDER.search(name))
            yield from ((number, "variable", "_".join(name)) for name in VARIABLE.findall(span))
            if FILE.fullmatch(span):
                yield number, "file", span
        code = " ".join(SPAN.findall(line)) if number in prose else line
        yield from ((number, "option", name) for name in OPTION.findall(code))
        yield from ((number, "shard", name) for names in SHARDS.findall(code) for name in names.split())


def is_there(tree, folder, kind, name):
    if kind == "type":
        return name in tree.words
    if kind == "path":
        return tree.has_path(name) or tree.has_path(f"{folder}/{name}")
    if kind == "file":
        return bool(fnmatch.filter(tree.names, name))
    if kind == "shard":
        return name in tree.shards
    if kind == "option":
        return name in tree.options or name.replace("-", "_") in tree.words
    prefix, _, rest = name.partition("_")
    return name in tree.words or (rest in tree.strings if prefix == "SIMCUDA" else rest.lower() in tree.settings)


def find_problems(root, others=NAMES_OF_OTHERS):
    tree, problems, used = Tree(root), [], set()
    for path in doc_format.doc_pages(root):
        if path.suffix != ".md" or path.as_posix().startswith(FREE):
            continue
        for number, kind, name in names_of(common.read(root, path)):
            if is_there(tree, path.parent.as_posix(), kind, name):
                continue
            if name in others:
                used.add(name)
            else:
                problems.append(f"{path}:{number}: no {kind} is called {name}")
    return problems + [f"the row for {name} is not needed" for name in others.keys() - used]


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
