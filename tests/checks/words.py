"""Checks that each thing has one name: the words that docs/glossary.md replaces are refused in the tree.

The last column of a table headed `replaces` lists struck words. A struck word is looked for in identifiers, by their
parts (`kOldWord`, `old_words_`), and in comments, messages and docs; one in backticks in identifiers of the product
alone, since it has a plain meaning as well; one in *italics* in all that the product and the docs consist of, but not
in tests, tools and results.
word_exceptions.txt names what may stay: a line has the word, a glob of paths, a pattern that the line of text must
match, and the reason.
"""

import fnmatch
import functools
import re
from dataclasses import dataclass
from pathlib import Path

import common

GLOSSARY = "docs/glossary.md"
EXCEPTIONS = "tests/checks/word_exceptions.txt"
RESULTS = ("docs", "results")  # what was measured on a day, in that day's words
OTHER_PROGRAMS = ("integration/simcuda/", "integration/examples/", "integration/quickstart/")
TEXT_ENDINGS = (".md", ".py", ".sh", ".txt", ".cmake")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TOKEN = re.compile(rf"{WORD.pattern}|[^\s\w]")
STRING = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
C_TEXT = re.compile(rf"//[^\n]*|/\*.*?\*/|{STRING}", re.DOTALL)
SCRIPT_TEXT = re.compile(rf'""".*?"""|#[^\n]*|{STRING}', re.DOTALL)


@dataclass(frozen=True)
class Struck:
    parts: tuple  # of the word, in lower case: ("gate", "slot")
    instead: str
    identifiers_only: bool
    product_only: bool

    @property
    def text(self):
        return " ".join(self.parts)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def struck_words(glossary):
    """The struck words of every table of the glossary. A word may be replaced by several."""
    found, replaces = {}, False
    for line in glossary.splitlines():
        if not line.startswith("|"):
            replaces = False
            continue
        row = cells(line)
        if row[-1] == "replaces":
            replaces = True
        elif replaces and not set(row[0]) <= set("-: "):
            for word in filter(None, (word.strip() for word in row[-1].split(","))):
                bare = word.strip("`*")
                before = found.get(bare)
                instead = f"{before.instead} or {row[0]}" if before else row[0]
                found[bare] = Struck(tuple(re.split(r"[ _]", bare)), instead, word[0] == "`", word[0] in "`*")
    return list(found.values())


@functools.cache
def parts_of(identifier):
    return [part.lower() for part in PART.findall(identifier)]


def same(part, wanted):
    return part in (wanted, wanted + "s", wanted + "es")


def has(parts, wanted):
    """Whether `wanted` stands in `parts` as a run of neighbours."""
    last = len(parts) - len(wanted) + 1
    return any(all(same(parts[at + i], word) for i, word in enumerate(wanted)) for at in range(last))


@dataclass(frozen=True)
class Allowed:
    word: str
    paths: str
    line: re.Pattern
    reason: str


def exceptions(text):
    """The exceptions, and what is wrong with those that cannot be read."""
    found, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 4 or not all(fields):
            problems.append(f"{EXCEPTIONS}:{number}: a line is WORD | PATHS | PATTERN | REASON")
            continue
        found.append(Allowed(fields[0], fields[1], re.compile(fields[2]), fields[3]))
    return found, problems


def checked_files(root):
    sources = common.source_files(root)
    folders = (*common.LAYERS, "tests", "bench", "docs")
    texts = [p.relative_to(root) for f in folders for p in (root / f).rglob("*") if p.suffix in TEXT_ENDINGS]
    texts += [Path(name) for name in ("README.md", "CMakeLists.txt") if (root / name).is_file()]
    kept = [path for path in texts if not common.SKIPPED_FOLDERS & set(path.parts)]
    return sorted(set(sources + kept) - {Path(GLOSSARY), Path(EXCEPTIONS)})


def only_code(path, text):
    """The text with comments and strings made blank; a page of prose is blank altogether."""
    if path.suffix == ".md":
        return re.sub(r"[^\n]", " ", text)
    pattern = C_TEXT if path.suffix in common.SOURCE_ENDINGS else SCRIPT_TEXT
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_words(line, code, struck):
    """The struck words in one line, whose code alone is `code`."""
    lower = line.lower()
    struck = [word for word in struck if word.parts[0] in lower]
    if not struck:
        return
    tokens = [parts_of(token) or [token] for token in TOKEN.findall(line)]
    identifiers = [parts for parts in tokens if len(parts) > 1] + [parts_of(name) for name in WORD.findall(code)]
    prose = [parts[0] if len(parts) == 1 else "" for parts in tokens]  # a sign, too, keeps words apart
    for word in struck:
        if any(has(parts, word.parts) for parts in identifiers) or (
            not word.identifiers_only and has(prose, word.parts)
        ):
            yield word


def is_product(path):
    inside = path.as_posix().startswith(OTHER_PROGRAMS)
    return path.parts[0] in common.LAYERS and path.suffix in common.SOURCE_ENDINGS and not inside


def is_page(path):
    return path.suffix == ".md" and path.parts[0] in ("README.md", "docs") and path.parts[:2] != RESULTS


def concerns(word, path):
    """Whether the word is looked for in that file."""
    if not word.product_only:
        return True
    return is_product(path) or (is_page(path) and not word.identifiers_only)


def find_problems(root: Path):
    struck = struck_words(common.read(root, Path(GLOSSARY)))
    problems = [] if struck else [f"{GLOSSARY}: no table of it has a column `replaces`"]
    allowed, wrong = exceptions(common.read(root, Path(EXCEPTIONS)))
    used = set()
    for path in checked_files(root):
        name = path.as_posix()
        near = [e for e in allowed if fnmatch.fnmatch(name, e.paths)]
        text = common.read(root, path)
        lower = text.lower()
        possible = [word for word in struck if all(part in lower for part in word.parts) and concerns(word, path)]
        lines = zip(text.split("\n"), only_code(path, text).split("\n")) if possible else ()
        for number, (line, code) in enumerate(lines, 1):
            for word in line_words(line, code, possible):
                fits = [e for e in near if e.word in (word.text, "*") and e.line.search(line)]
                used.update(fits)
                if not fits:
                    problems.append(f"{name}:{number}: '{word.text}' is '{word.instead}' here: {line.strip()}")
    unused = [f"{EXCEPTIONS}: '{e.word} | {e.paths} | {e.line.pattern}' allows nothing" for e in allowed if e not in used]
    return wrong + problems + unused


if __name__ == "__main__":
    common.run_check(__doc__, lambda args: find_problems(args.root))
