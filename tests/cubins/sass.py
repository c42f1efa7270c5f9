"""The text of nvdisasm as instructions and basic blocks."""

import dataclasses
import re

HEAD = re.compile(r"^\.text\.(.+):$")
LABEL = re.compile(r"^(\.L_x_\d+|\$\S+):$")
LINE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z0-9_.a-z]+)\s*(.*?)\s*;")
TARGET = re.compile(r"`\((\.L_x_\d+|\$[^)]+)\)")
NUMBER = re.compile(r"\b(0x[0-9a-f]+)$")  # a target in code without symbols
TARGETS = re.compile(r'BRANCH_TARGETS ([^"]*)"')
NO_WAY_ON = ("EXIT", "RET", "BRX", "BRXU", "JMX", "KILL", "BPT")


@dataclasses.dataclass
class Instruction:
    address: int
    predicate: str  # "" when it always runs
    name: str
    operands: list

    @property
    def kind(self):
        return self.name.split(".", 1)[0]


@dataclasses.dataclass
class Block:
    instructions: list
    next: list  # indices of blocks


def split(text):
    """Operands, without their commas; brackets keep what is in them together."""
    parts, depth, start = [], 0, 0
    for at, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def functions(text):
    """(name, lines) of each kernel of a disassembly."""
    name, lines = None, []
    for line in text.splitlines():
        head = HEAD.match(line)
        if head or line.startswith("//-----"):
            if name:
                yield name, lines
            name, lines = head[1] if head else None, []
        elif name:
            lines.append(line)
    if name:
        yield name, lines


def blocks(lines):
    """The basic blocks of a kernel; the first is its entry."""
    instructions, labels, jumps = [], {}, {}
    for line in lines:
        label = LABEL.match(line)
        if label:
            labels[label[1]] = len(instructions)
            continue
        found = LINE.match(line)
        if not found:
            continue
        address, predicate, name, operands = found.groups()
        at = len(instructions)
        several = TARGETS.search(line)
        targets = TARGET.findall(operands) or NUMBER.findall(operands) if name.startswith(("BRA", "JMP", "CALL", "BREAK")) else []
        if several:
            targets = [t.strip() for t in several[1].split(",")]
        if targets or name.startswith(("BRX", "JMX")):
            jumps[at] = targets
        instructions.append(Instruction(int(address, 16), predicate or "", name, split(operands)))
    places = {f"{i.address:#x}": at for at, i in enumerate(instructions)}
    for targets in jumps.values():
        labels.update((t, places[t]) for t in targets if t in places)
    return cut(instructions, labels, jumps)


def cut(instructions, labels, jumps):
    starts = {0, *labels.values(), *(at + 1 for at in jumps)}
    starts |= {at + 1 for at, i in enumerate(instructions) if i.kind in NO_WAY_ON}
    starts = sorted(s for s in starts if s < len(instructions))
    index = {start: number for number, start in enumerate(starts)}
    result = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(instructions)
        last = instructions[end - 1]
        known = [labels[t] for t in jumps.get(end - 1, ()) if t in labels]
        if end - 1 in jumps and not known and last.kind in ("BRX", "BRXU", "JMX"):
            known = labels.values()  # where it goes is not known: anywhere
        way_on = last.predicate or not (last.kind in NO_WAY_ON or last.kind in ("BRA", "JMP"))
        if last.kind in ("BRA", "JMP") and len(last.operands) > 1:
            way_on = True  # a second predicate among the operands
        nexts = {index[k] for k in known if k in index}
        if way_on and end in index:
            nexts.add(index[end])
        result.append(Block(instructions[start:end], sorted(nexts)))
    return result
