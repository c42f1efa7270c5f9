"""Which accesses of a kernel go through an address that lay in memory.

A value is what its sum may consist of: a word of the parameters, a 64-bit word that was loaded, both, or neither. A
register's value is a set of such possibilities, one for each way that led to it. An access counts when both halves of its
base may consist of a loaded word without any parameter: `table[i][x]` counts, `base[index[x]]` does not, since the sum
has the base. What is multiplied or shifted is an index and no base.

A kernel may read its parameters like memory, through the address that the constant bank has in the generic address space
(flash attention does, for parameters that it passes on by reference). What it loads from there is a word of the parameters.
"""

import re

NEITHER, PARAMETER, LOADED, BOTH = 1, 2, 4, 8
OWN = 16  # the generic address of the kernel's own parameters, whatever number is added to it
OWN_OFFSET = 0x198  # where the constant bank has it, as the code of sm_90 shows
SUM = {}
for _a in range(32):
    for _b in range(32):
        _sum = OWN if (_a | _b) & OWN else 0
        for _i in range(4):
            for _j in range(4):
                if _a >> _i & 1 and _b >> _j & 1:
                    _sum |= 1 << (_i | _j)
        SUM[_a, _b] = _sum

REGISTER = re.compile(r"^[-~!|]*(U?R)(\d+|Z)\b")
BANK = re.compile(r"^[-~|]*c\[(0x[0-9a-f]+)\]\[(?:U?R\w+(?:\.\w+)?\+?)?(0x[0-9a-f]+)?\]")
BASE = re.compile(r"\[([^\[\]]*)\]$")
PREDICATE = re.compile(r"^!?U?P(\d|T)$")

ARGUMENTS = range(4, 16)  # registers of the arguments of a function
LOADS = {"LDG", "LD", "ATOM", "ATOMG", "ULDG"}
ACCESSES = LOADS | {"STG", "ST", "RED", "REDG"}
NO_RESULT = {"STG", "ST", "STS", "STL", "RED", "REDG", "BRA", "EXIT", "BAR", "BSSY", "BSYNC", "RET", "NOP", "CALL", "WARPSYNC",
             "MEMBAR", "CCTL", "BRX", "DEPBAR", "LDGDEPBAR", "ERRBAR", "KILL", "BPT", "YIELD", "SYNCS", "LDGSTS", "ISETP",
             "FSETP", "PLOP3", "UISETP", "UPLOP3", "HSETP2", "DSETP"}  # fmt: skip
MOVES = {"MOV", "UMOV", "R2UR", "SEL", "USEL", "SHFL"}
ADDITIONS = {"IADD3", "IADD", "UIADD3", "VIADD", "LOP3", "ULOP3", "UIADD", "IADD32I", "LOP32I"}


def words_of(name):
    """How many registers an instruction of that name moves."""
    if ".128" in name:
        return 4
    return 2 if ".64" in name or ".WIDE" in name or name == "CS2R" else 1


class Flow:
    """The analysis of one kernel. `is_word(offset)`: whether that byte of constant bank 0 is part of a parameter that may
    hold an address."""

    def __init__(self, blocks, is_word):
        self.blocks, self.is_word = blocks, is_word
        self.slots = {}  # what lies on the stack, by the text of its address
        self.predicate = ""  # of the instruction that is looked at
        self.under = {}  # in this block, by register: what it consists of where a predicate holds
        self.shared = NEITHER  # what shared memory may hold
        self.found = {}  # address of an instruction that goes through a loaded word: its name
        self.stored = {}  # address of an instruction that stores a word of the parameters: its name

    def run(self):
        """Fills `found` and `stored`."""
        before = None
        while self.blocks and (self.slots, self.shared) != before:  # again when stack or shared memory has learnt something
            before = (dict(self.slots), self.shared)
            self.walk()
        return self

    def walk(self):
        entry = {0: {}}
        todo = [0]
        while todo:
            number = todo.pop()
            state = dict(entry[number])
            self.under = {}
            for instruction in self.blocks[number].instructions:
                self.step(instruction, state)
            for way in self.blocks[number].next:
                known = entry.get(way)
                if known is None:
                    entry[way] = dict(state)
                    todo.append(way)
                elif join(known, state):
                    todo.append(way)

    # ---- Operands.

    def value(self, operand, state, half=0):
        """What an operand may consist of; half 1: of the register after it."""
        if operand.startswith("-"):
            return NEITHER  # a difference of addresses is an index
        register = REGISTER.match(operand)
        if register:
            if register[2] == "Z":
                return NEITHER
            name = f"{register[1]}{int(register[2]) + half}"
            under = self.under.get(name)
            if under and self.predicate in under:
                return under[self.predicate]
            return state.get(name, NEITHER)
        bank = BANK.match(operand)
        if not bank:
            return NEITHER
        if int(bank[1], 16) != 0:
            return PARAMETER  # an address of the module's own
        if int(bank[2] or "0", 16) + 4 * half in (OWN_OFFSET, OWN_OFFSET + 4):
            return OWN
        return PARAMETER if self.is_word(int(bank[2] or "0", 16) + 4 * half) else NEITHER

    def base(self, operand, state, wide):
        """What the low and the high half of an access's address may consist of. `wide`: it has 64 bits, as it may without a
        `.64` in its text."""
        inside = BASE.search(operand)
        low = high = NEITHER
        for part in (inside[1] if inside else "").split("+"):
            register = REGISTER.match(part)
            if not register or register[2] == "Z":
                continue
            low = SUM[low, self.value(part, state)]
            if wide or ".64" in part or register[1] == "UR":
                high = SUM[high, self.value(part, state, 1)]
        return low, high

    # ---- Instructions.

    def step(self, instruction, state):
        kind, operands = instruction.kind, instruction.operands
        self.predicate = instruction.predicate
        if kind in ACCESSES or (kind == "LDGSTS" and len(operands) > 1):
            self.access(instruction, state)
        if kind in ("STS", "STL"):
            self.store(instruction, state)
        if kind == "CALL" and ".ABS" in instruction.name:  # __assertfail and its kin; their arguments are gone then
            for number in ARGUMENTS:
                state[f"R{number}"] = NEITHER
        for operand in operands[: 1 if kind in ("VOTE", "VOTEU") else 2]:  # their second is what they ask
            if PREDICATE.match(operand) and not operand.endswith("T"):
                self.forget(operand)
        if kind in NO_RESULT or not operands:
            return
        sources = [o for o in operands if not PREDICATE.match(o)]
        target = REGISTER.match(sources[0]) if sources else None
        if not target or target[2] == "Z":
            return
        for half, result in enumerate(self.results(instruction, sources[1:], state)):
            self.write(state, f"{target[1]}{int(target[2]) + half}", result)

    def access(self, instruction, state):
        operands = instruction.operands[1:] if instruction.kind == "LDGSTS" else instruction.operands
        at = next((i for i, o in enumerate(operands) if "[" in o and not o.startswith("c[")), None)
        if at is None:
            return
        low, high = self.base(operands[at], state, ".E" in instruction.name)
        if low & LOADED and high & LOADED:
            self.found[instruction.address] = instruction.name
        if instruction.kind not in ("STG", "ST"):
            return
        for half in range(0, words_of(instruction.name) - 1, 2):
            if all(self.value(operands[at + 1], state, half + i) & PARAMETER for i in (0, 1)):
                self.stored[instruction.address] = instruction.name

    def results(self, instruction, sources, state):
        """What the registers that the instruction writes may consist of, the first register first."""
        kind, name, words = instruction.kind, instruction.name, words_of(instruction.name)
        if kind in LOADS:
            if self.is_own(instruction, state):
                return [PARAMETER] * words if words > 1 else [NEITHER]
            return [LOADED] * words if words > 1 else [NEITHER]
        if kind in ("LDS", "LDL"):
            return self.load(instruction, sources, words)
        if kind in ("LDC", "ULDC", "LDCU"):
            return [self.value(sources[0], state, half) for half in range(words)]
        if kind in MOVES:
            return [self.either(sources if kind != "SHFL" else sources[:1], state, half) for half in range(words)]
        if kind in ADDITIONS:
            return [self.total(sources, state, half) for half in range(words)]
        if kind in ("IMAD", "UIMAD"):
            return self.multiplied(name, sources, state, words)
        if kind in ("LEA", "ULEA"):
            return self.scaled(name, sources, state)
        return [NEITHER] * words

    def is_own(self, instruction, state):
        """Whether a load reads the kernel's own parameters."""
        place = next((o for o in instruction.operands if "[" in o and not o.startswith("c[")), None)
        return place is not None and self.base(place, state, ".E" in instruction.name)[0] == OWN

    def either(self, sources, state, half):
        result = 0
        for source in sources:
            result |= self.value(source, state, half) if REGISTER.match(source) or BANK.match(source) else 0
        return result or NEITHER

    def total(self, sources, state, half=0):
        result = NEITHER
        for source in sources:
            result = SUM[result, self.value(source, state, half)]
        return result

    def multiplied(self, name, sources, state, words):
        if ".SHL" in name or ".HI" in name or len(sources) < 3:
            return [NEITHER] * words
        one = sources[1] in ("0x1", "1")
        parts = [sources[0], sources[2]] if one else [sources[2]]
        if words == 1:
            return [self.total(parts, state)]
        return [self.total(parts, state), self.value(sources[2], state, 1)]

    def scaled(self, name, sources, state):
        if len(sources) < 2:
            return [NEITHER]
        shift = next((s for s in reversed(sources) if re.fullmatch(r"0x[0-9a-f]+", s)), None)
        unscaled = shift == "0x0" and ".HI" not in name
        return [self.total(sources[:2] if unscaled else sources[1:2], state)]

    def write(self, state, name, result):
        """The compiler gives one register to two values that never live under the same predicate."""
        if not self.predicate:
            self.under.pop(name, None)
            state[name] = result
            return
        opposite = self.predicate[1:] if self.predicate.startswith("!") else "!" + self.predicate
        known = self.under.get(name, {})
        self.under[name] = {p: known[p] for p in (opposite,) if p in known} | {self.predicate: result}
        state[name] = result | known.get(opposite, state.get(name, NEITHER))

    def forget(self, predicate):
        """A predicate is set anew."""
        for known in self.under.values():
            known.pop(predicate, None)
            known.pop("!" + predicate, None)

    # ---- Stack and shared memory.

    def store(self, instruction, state):
        words = words_of(instruction.name)
        place, source = instruction.operands[0], instruction.operands[1]
        values = [self.value(source, state, half) for half in range(words)]
        if instruction.kind == "STS":
            for value in values:
                self.shared |= value if words > 1 else 0
            return
        for half, value in enumerate(values):
            key = slot(place, half)
            self.slots[key] = self.slots.get(key, 0) | value

    def load(self, instruction, sources, words):
        if instruction.kind == "LDS":
            return [self.shared] * words if words > 1 else [NEITHER]
        return [self.slots.get(slot(sources[0], half), NEITHER) for half in range(words)]


def slot(place, half):
    """A word of the stack: the text of its address without the number, and the number."""
    number = re.search(r"\+(-?0x[0-9a-f]+)\]", place)
    return re.sub(r"\+-?0x[0-9a-f]+\]", "]", place), (int(number[1], 16) if number else 0) + 4 * half


def join(known, state):
    """Adds what `state` knows; whether that was new. A register that one way has not written is of neither kind there."""
    changed = False
    for name in known.keys() | state.keys():
        both = known.get(name, NEITHER) | state.get(name, NEITHER)
        if known.get(name, NEITHER) != both or name not in known:
            known[name] = both
            changed = True
    return changed
