"""Random allocator configurations, well formed and not, through spillway_take_conf and through a model of it.

Run by conf_test.py: conf_model.py SHIM COUNT
"""

import ctypes
import pathlib
import random
import re
import sys

SETTINGS = pathlib.Path(__file__).parents[3] / "integration" / "settings" / "settings.def"
OURS = re.findall(r"^SETTING\((\w+)", SETTINGS.read_text(), re.MULTILINE)
PIECES = [*OURS[:6], "backend", "spillway", "native", "max_split_size_mb", "a", "/b:2TiB", "64", " ", "\t", "", "é"]
SEPARATORS = [",", ",", ":", ":", "[", "]", ";", "][", ",,", ""]
VARIABLE, KEPT = b"PYTORCH_CUDA_ALLOC_CONF", b"SPILLWAY_ALLOC_CONF_ORIGINAL"
SPACES = " \t\n\v\f\r"


def random_text(random_numbers):
    words = random_numbers.randrange(12)
    return "".join(random_numbers.choice(PIECES) + random_numbers.choice(SEPARATORS) for _ in range(words))


def entries(text):
    depth, entry = 0, ""
    for character in text:
        if character == "[":
            depth += 1
        elif character == "]":
            depth = max(0, depth - 1)
        if character == "," and depth == 0:
            yield entry
            entry = ""
        else:
            entry += character
    yield entry


def is_ours(entry):
    key, _, value = (part.strip(SPACES) for part in entry.partition(":"))
    return key in OURS or (key == "backend" and value == "spillway")


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a.lower(), 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def is_slip(text):
    """What the shim ends the process for: lists without brackets, nobody's keys beside our backend, and near misses of it."""
    parts = [[part.strip(SPACES) for part in entry.partition(":")] for entry in entries(text)]
    beside_ours = any(key == "backend" and value == "spillway" for key, _, value in parts)
    list_key = ""
    for entry, (key, _, value) in zip(entries(text), parts):
        if list_key == "dirs" and not is_ours(entry) and key.startswith("/"):
            return True
        bracketed = len(value) >= 2 and value[0] == "[" and value[-1] == "]"
        list_key = key if key == "dirs" and not bracketed else ""
        if not key or is_ours(entry):
            continue
        if key == "backend" and distance(value, "spillway") <= 2:
            return True
        if beside_ours and key not in ("backend", "max_split_size_mb"):
            return True
    return False


def rest(text):
    return ",".join(entry for entry in entries(text) if entry and not is_ours(entry))


def main():
    shim, count = ctypes.CDLL(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    random_numbers = random.Random(20260101)
    touched = slips = 0
    for _ in range(count):
        text = random_text(random_numbers)
        if is_slip(text):
            slips += 1
            continue
        libc.setenv(VARIABLE, text.encode(), 1)
        libc.unsetenv(KEPT)
        shim.spillway_take_conf()
        found = (libc.getenv(VARIABLE), libc.getenv(KEPT))
        ours = any(is_ours(entry) for entry in entries(text))
        touched += ours
        wanted = (rest(text).encode() or None, text.encode()) if ours else (text.encode(), None)
        if found != wanted:
            sys.exit(f"{text!r}: {found} instead of {wanted}")
    if not count // 10 < touched < count * 9 // 10 or slips > count // 2:
        sys.exit(f"{touched} of {count} texts held our keys, {slips} had slips: the generator says little")
    print(f"{count} texts as the model has them")


if __name__ == "__main__":
    main()
