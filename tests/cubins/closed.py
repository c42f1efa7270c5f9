"""What the names of kernels tell of tables of addresses, where instructions may not be read.

A name has the types of the parameters, unless it is a C name. A parameter `T**` is a table that the kernel may write, a
`T* const*` one that it may only read. A kernel that is given a table to write and an address of what its entries lead to
(`void fill(T** table, T* base, long stride)`) is a suspect: it may be a writer. A kernel without such a pair cannot write
addresses of its parameters into a table, as far as the types say.
"""

import re

import elf
import names

TABLE = re.compile(r"\*(?: ?const)? ?\*$")
WRITABLE = re.compile(r"\* ?\*$")


def types_of(readable):
    """The types of the parameters; none where the name has none."""
    return elf.last_types(readable) if readable.endswith(")") else []


def element(pointer):
    """What a pointer leads to, without const: of `float const*` float."""
    return re.sub(r"\bconst\b", "", pointer[:-1]).replace(" ", "")


def is_table(kind):
    return TABLE.search(kind) is not None


def names_table(readable):
    """Whether one of the parameters is a table of addresses."""
    return any(map(is_table, types_of(readable)))


def is_suspect(readable):
    """Whether the kernel is given a table to write and an address that may belong there."""
    types = types_of(readable)
    tables = {element(kind[:-1].rstrip()) for kind in types if WRITABLE.search(kind)}
    single = {element(kind) for kind in types if kind.endswith("*") and not is_table(kind)}
    return bool(tables & single or ("void" in tables and single) or (tables and "void" in single))


def summary(kernels):
    """What a library's kernels tell, in words."""
    readable = names.demangle(sorted(kernels))
    typed, tables, suspects = (sum(map(what, readable)) for what in (lambda name: bool(types_of(name)), names_table, is_suspect))
    return (f"{len(readable)} kernels by name, {typed} with the types of their parameters; {tables} take a table of addresses, "
            f"{suspects} may write one; no instruction was read")  # fmt: skip
