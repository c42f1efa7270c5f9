"""What an ELF cubin says of itself, without its instructions: kernels, and the sizes and places of their parameters.

The driver gives the same through cuFuncGetParamInfo and cuKernelGetName.
"""

import dataclasses
import struct

SECTION = struct.Struct("<IIQQQQIIQQ")
# Attributes of .nv.info sections: a parameter, in kernels of at most 4 KiB of them and of more; where the parameters lie in
# the constant bank.
KPARAM_INFO, WIDE_KPARAM_INFO, PARAM_CBANK = 0x17, 0x45, 0x0A
NO_BYTES = 8  # the kind of a section
SYMBOL = struct.Struct("<IBBHQQ")
ENTRY = 0x10  # in the second byte of a symbol's kind: a kernel; without it, a function that kernels call
SIZED_VALUE = 4  # the format of an attribute whose value has a size in front


@dataclasses.dataclass
class Kernel:
    name: str
    code_bytes: int
    parameters: list  # (offset, bytes), in the order of their numbers
    bank_offset: int = 0  # of the first parameter in constant bank 0
    numbers: frozenset = frozenset()  # which parameters are plain numbers, as far as the name says

    def is_word(self, offset):
        """Whether a byte of the constant bank belongs to a parameter that may hold an address."""
        at = offset - self.bank_offset
        return any(start <= at < start + size and size >= 8 and number not in self.numbers
                   for number, (start, size) in enumerate(self.parameters))  # fmt: skip

    def learn_types(self, readable):
        """Notes which parameters are numbers, from the name as people read it: `void f<..>(float*, long)`."""
        types = last_types(readable)
        if len(types) == len(self.parameters):
            self.numbers = frozenset(i for i, t in enumerate(types) if t in NUMBERS)


NUMBERS = {f"{sign}{size}" for sign in ("", "unsigned ") for size in ("long", "long long")} | {"double"}


def last_types(readable):
    """The types in the last brackets of a readable name."""
    end, depth, start = readable.rfind(")"), 0, -1
    for at in range(end, -1, -1):
        depth += (readable[at] in ")>]") - (readable[at] in "(<[")
        if depth == 0:
            start = at
            break
    types, depth, begin = [], 0, start + 1
    for at in range(start + 1, end):
        depth += (readable[at] in "(<[") - (readable[at] in ")>]")
        if readable[at] == "," and depth == 0:
            types.append(readable[begin:at].strip())
            begin = at + 1
    return [*types, readable[begin:end].strip()] if start >= 0 and begin < end else types


def entries(data):
    """The names of the kernels, by the table of symbols."""
    found = dict(sections(data))
    names = found.get(".strtab", b"")
    for at, _, other, *_ in SYMBOL.iter_unpack(found.get(".symtab", b"")):
        if other & ENTRY:
            yield names[at : names.find(b"\0", at)].decode()


def headers(data):
    """(name, offset, size) of each section; of size 0 where it has no bytes in the file."""
    if data[:4] != b"\x7fELF" or data[4] != 2:
        raise ValueError("not a 64-bit ELF file")
    table, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    found = [SECTION.unpack_from(data, table + i * SECTION.size) for i in range(count)]
    strings = found[names][4]
    for name, kind, _, _, offset, size, *_ in found:
        start = strings + name
        yield data[start : data.find(b"\0", start)].decode(), offset, 0 if kind == NO_BYTES else size


def sections(data):
    """(name, bytes) of each section."""
    for name, offset, size in headers(data):
        yield name, data[offset : offset + size]


def code_of(data, kernel):
    """The instructions of one kernel."""
    return next(content for name, content in sections(data) if name == f".text.{kernel}")


def attributes(info):
    """(number, value) of the attributes of a .nv.info section; the value is bytes."""
    at = 0
    while at + 4 <= len(info):
        form, number, small = info[at], info[at + 1], info[at + 2 : at + 4]
        at += 4
        if form == SIZED_VALUE:
            size = int.from_bytes(small, "little")
            yield number, info[at : at + size]
            at += size
        else:
            yield number, small


def kernels(data):
    """The kernels of a cubin, by name; without the functions that they call."""
    found, infos, named = {}, {}, {f".text.{name}" for name in entries(data)}
    for name, content in sections(data):
        if name in named:
            found[name[6:]] = Kernel(name[6:], len(content), [])
        elif name.startswith(".nv.info."):
            infos[name[9:]] = content
    for name, kernel in found.items():
        numbered = {}
        for number, value in attributes(infos.get(name, b"")):
            if number in (KPARAM_INFO, WIDE_KPARAM_INFO) and len(value) >= 12:
                _, ordinal, offset, size = struct.unpack_from("<IHHI", value)
                numbered[ordinal] = (offset, size >> 18 if number == KPARAM_INFO else size)
            elif number == PARAM_CBANK and len(value) >= 8:
                kernel.bank_offset = struct.unpack_from("<H", value, 4)[0]
        kernel.parameters = [numbered[ordinal] for ordinal in sorted(numbered)]
    return found
