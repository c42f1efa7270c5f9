"""Every virtual function of PyTorch's CUDAAllocator and its bases is overridden by ours or listed with a reason.

The compiler says what is virtual: `g++ -fdump-lang-class` writes the table of virtual functions of each class, in
which a derived class keeps the places of its bases. A place of CUDAAllocator that SpillwayAllocator has not filled
is reported.

Needs TORCH_INCLUDE (of one PyTorch), CUDA_INCLUDE (folders with a colon between), SPILLWAY_SOURCE (the checkout) and SPILLWAY_GXX.
"""

import collections
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

CUDA_ALLOCATOR = "c10::cuda::CUDACachingAllocator::CUDAAllocator"
OURS = "spillway::integration::SpillwayAllocator"
DEVICE_ALLOCATOR = "c10::DeviceAllocator"  # from 2.9 on
BASES = [OURS, "spillway::integration::CompatAllocator", CUDA_ALLOCATOR, DEVICE_ALLOCATOR, "c10::Allocator"]
# Of 2.9 and of 2.4, two places of the destructor among them. Fewer: the table was not read.
FEWEST, FEWEST_BEFORE = 45, 34

# One place each in the table.
NOT_OVERRIDDEN = {
    "c10::Allocator::is_simple_data_ptr": "compares pointer and context, which are equal in our pointers as in native's",
    f"{CUDA_ALLOCATOR}::recordStream": "of a c10::Stream: calls the one of a CUDAStream, which is overridden",
}

ALLOCATOR_H = Path("c10", "cuda", "CUDACachingAllocator.h")
LAST_MEMBER = "  virtual std::string name() = 0;\n"


class NotRead(Exception):
    """The dump does not say what is expected of it."""


def dump(source_text, includes):
    """What the compiler writes about the classes of a source."""
    with tempfile.TemporaryDirectory() as folder:
        source, classes = Path(folder, "a.cc"), Path(folder, "a.class")
        source.write_text(source_text)
        subprocess.run(
            [os.environ.get("SPILLWAY_GXX", "g++"), "-std=c++20", "-D_GLIBCXX_USE_CXX11_ABI=1", "-fsyntax-only",
             f"-fdump-lang-class={classes}", *(f"-isystem{path}" for path in includes), str(source)],
            check=True, capture_output=True, text=True)  # fmt: skip
        return classes.read_text()


def one(pattern, text, what):
    found = re.findall(pattern, text, re.MULTILINE)
    if len(found) != 1:
        raise NotRead(f"{what}: found {len(found)} times")
    return found[0]


def bases(classes, name):
    """The class and its bases, from the most derived on."""
    block = one(rf"^Class {re.escape(name)}\n((?:.+\n)+)", classes, name)
    return re.findall(r"^(\S+) \(0x", block, re.MULTILINE)


def places(classes, name):
    """The functions in the virtual table, as "class::function"; of pure ones the compiler's mark."""
    count, block = one(rf"^Vtable for {re.escape(name)}\n.*: (\d+) entries\n((?:.+\n)+)", classes, f"table of {name}")
    entries = re.findall(r"^\d+ +(?:\(int \(\*\)\(\.\.\.\)\))?(.+)$", block, re.MULTILINE)
    # Offset and type come first; a second pair would belong to a second base.
    if len(entries) != int(count) or ["_ZTI" in entry for entry in entries].index(True) != 1:
        raise NotRead(f"table of {name}: {len(entries)} of {count} entries")
    if sum("_ZTI" in entry for entry in entries) != 1:
        raise NotRead(f"{name} has more than one table")
    return entries[2:]


def find_problems(classes, allowed, fewest):
    """Places of CUDAAllocator that are neither ours nor in `allowed`, and names in `allowed` that are no such place."""
    if bases(classes, OURS) not in (BASES, [name for name in BASES if name != DEVICE_ALLOCATOR]):
        raise NotRead(f"bases of ours: {bases(classes, OURS)}")
    asked = len(places(classes, CUDA_ALLOCATOR))
    if asked < fewest:
        raise NotRead(f"{CUDA_ALLOCATOR} has {asked} virtual functions, expected {fewest} or more")
    filled = places(classes, OURS)[:asked]
    theirs = collections.Counter(place for place in filled if not place.startswith("spillway::integration::"))
    problems = [f"{name}: {count} not overridden" for name, count in sorted((theirs - collections.Counter(allowed)).items())]
    return problems + [f"{name}: listed, but overridden or gone" for name in sorted(set(allowed) - set(theirs))]


def include_folders():
    torch = os.environ["TORCH_INCLUDE"]
    return [torch, os.path.join(torch, "torch", "csrc", "api", "include"), os.environ["SPILLWAY_SOURCE"],
            *os.environ["CUDA_INCLUDE"].split(":")]  # fmt: skip


def problems_of_ours(first_folders=()):
    classes = dump('#include "integration/torch/allocator.h"\n', [*first_folders, *include_folders()])
    allowed, fewest = dict.fromkeys(NOT_OVERRIDDEN, 1), FEWEST
    if DEVICE_ALLOCATOR not in bases(classes, OURS):
        allowed.pop(f"{CUDA_ALLOCATOR}::recordStream")  # of a c10::Stream: from 2.9 on
        fewest = FEWEST_BEFORE
    return find_problems(classes, allowed, fewest)


class VirtualsTest(unittest.TestCase):
    def test_each_is_overridden_or_listed(self):
        self.assertEqual(problems_of_ours(), [])

    def test_a_member_that_pytorch_gains_is_found(self):
        text = Path(os.environ["TORCH_INCLUDE"], ALLOCATOR_H).read_text()
        self.assertEqual(text.count(LAST_MEMBER), 1)
        with tempfile.TemporaryDirectory() as folder:
            changed = Path(folder, ALLOCATOR_H)
            changed.parent.mkdir(parents=True)
            changed.write_text(text.replace(LAST_MEMBER, LAST_MEMBER + "  virtual void gained(int) {}\n"))
            self.assertEqual(problems_of_ours([folder]), [f"{CUDA_ALLOCATOR}::gained: 1 not overridden"])


SMALL = """namespace c10 {
struct Allocator { virtual ~Allocator(); virtual void* allocate(int) = 0; virtual bool simple() const; };
struct DeviceAllocator : Allocator { virtual void empty() = 0; FIRST };
namespace cuda { namespace CUDACachingAllocator {
struct CUDAAllocator : DeviceAllocator { virtual void init() = 0; virtual void same(int); virtual void same(long); };
}}}
namespace spillway { namespace integration {
struct CompatAllocator : c10::cuda::CUDACachingAllocator::CUDAAllocator { void empty() override; };
struct SpillwayAllocator : CompatAllocator SECOND {
  void* allocate(int) override; void init() override; void same(int) override; OWN
};
SpillwayAllocator* make() { return new SpillwayAllocator; }
}}
"""


class PlantedTest(unittest.TestCase):
    """The same judgement over small classes of the same names."""

    ALLOWED = {"c10::Allocator::simple": 1, f"{CUDA_ALLOCATOR}::same": 1}

    def found(self, first="", second="", own="", allowed=None, fewest=8):
        text = SMALL.replace("FIRST", first).replace("SECOND", second).replace("OWN", own)
        return find_problems(dump(text, []), self.ALLOWED if allowed is None else allowed, fewest)

    def test_what_is_overridden_or_listed_passes(self):
        self.assertEqual(self.found(), [])

    def test_a_new_member_of_any_base_is_found(self):
        self.assertEqual(self.found(first="virtual void gained();"), ["c10::DeviceAllocator::gained: 1 not overridden"])
        self.assertEqual(self.found(first="virtual void gained();", own="void gained() override;"), [])

    def test_a_function_of_the_same_name_is_no_override(self):
        found = self.found(first="virtual void gained(int);", own="void gained(long);")
        self.assertEqual(found, ["c10::DeviceAllocator::gained: 1 not overridden"])

    def test_a_second_overload_is_not_covered_by_the_first_ones_line(self):
        self.assertEqual(self.found(allowed={"c10::Allocator::simple": 1, f"{CUDA_ALLOCATOR}::same": 2}), [])
        both = self.found(own="using CUDAAllocator::same; virtual void other();", first="virtual void same(char);")
        self.assertEqual(both, ["c10::DeviceAllocator::same: 1 not overridden"])

    def test_a_line_without_a_member_is_found(self):
        found = self.found(own="void same(long) override;")
        self.assertEqual(found, [f"{CUDA_ALLOCATOR}::same: listed, but overridden or gone"])

    def test_too_few_members_or_other_bases_are_an_error(self):
        with self.assertRaises(NotRead):
            self.found(fewest=9)
        with self.assertRaises(NotRead):
            self.found(second=", other", first="}; } struct other { virtual void a(); }; namespace c10 { struct more {")
        with self.assertRaises(NotRead):
            find_problems("", self.ALLOWED, 1)


if __name__ == "__main__":
    unittest.main()
