"""The rows of the deny list that comes with the product, out of its source."""

import dataclasses
import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "integration" / "escape" / "deny_list.cc"
TEXT = re.compile(r'DenyList::Shipped\(\) \{.*?R"\((.*?)\)"', re.DOTALL)


@dataclasses.dataclass
class Row:
    name: str  # each `*` stands for any text
    library: str  # the same; "" for any
    action: str

    @property
    def kind(self):
        """What a kernel must be for this row to help."""
        return "writer" if self.action == "writer" else "follower"

    @property
    def example(self):
        """The shortest name that the row matches, as a family's regex sees it."""
        return f"{self.library}:{self.name}".replace("*", "")

    def matches(self, kernel, library):
        return covers(self.name, kernel) and (not self.library or covers(self.library, library))


def covers(pattern, text):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def read_rows(text):
    """The rows of a deny list's text; the product itself refuses what is wrong in it."""
    rows = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            options = dict(word.split("=") for word in words[1:] if "=" in word)
            libraries = [word for word in words[1:] if "=" not in word]
            rows.append(Row(words[0], *libraries or [""], options.get("action", "everything")))
    return rows


def shipped_rows(source=SOURCE):
    found = TEXT.search(source.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{source}: no text of the shipped list in it")
    return read_rows(found[1])
