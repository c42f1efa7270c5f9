"""As self_test, for the checks that look at names: types defined once, local functions that hide others."""

import unittest

import local_names
import types_once
from planted import Planted


class TypesOnceTest(Planted):
    def found(self):
        return types_once.find_problems(self.root)

    def test_types_with_names_of_their_own_pass(self):
        self.put("io/a.h", "struct Slot;\nclass Store final : public Slot {\n};\nstruct Store::State {\n};\nenum class Kind : int { kA };\n")
        self.put("io/b.h", "struct Slot {\n};\n")
        self.put("io/b.cc", "struct Slot {\n};\n")
        self.put("integration/simcuda/b.h", "struct Slot {\n};\n")
        self.assertEqual(self.found(), [])

    def test_a_name_of_two_types_is_found(self):
        for first, second in (("struct Slot {\n};\n", "class Slot {\n};\n"), ("enum class Slot { kA };\n", "struct [[nodiscard]] Slot {\n};\n")):
            self.put("io/a.h", first)
            self.put("policy/b.h", second)
            self.assertEqual(self.found(), ["Slot is defined in io/a.h, policy/b.h: name each after what it is"])

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(types_once.find_problems(self.root, fewest=1), ["only 0 types found, expected 1"])


class LocalNamesTest(Planted):
    HEADER = "namespace spillway::io {\nint Count(long bytes);\n}\n"
    SOURCE = "namespace spillway::io {\nnamespace {\n\nint {}(const Json& state) {\n  return 0;\n}\n\n}  // namespace\n}\n"

    def found(self, path, name):
        self.put("io/os/a.h", self.HEADER)
        self.put(path, self.SOURCE.replace("{}", name, 1))
        return local_names.find_problems(self.root)

    def test_a_local_function_that_hides_a_headers_is_found(self):
        self.assertEqual(self.found("io/b.cc", "Count"), ["io/b.cc has a Count of its own, which hides that of io/os/a.h: name it after what it does"])

    def test_other_names_and_other_layers_pass(self):
        self.assertEqual(self.found("io/b.cc", "CountOf"), [])
        self.assertEqual(self.found("policy/b.cc", "Count"), [])
        self.put("io/c.cc", "namespace {\n}  // namespace\nint Count(long bytes) {\n}\n")
        self.assertEqual(local_names.find_problems(self.root), [])

    def test_a_tree_that_was_not_read_is_found(self):
        self.assertEqual(local_names.find_problems(self.root, fewest=1), ["only 0 functions found, expected 1"])


if __name__ == "__main__":
    unittest.main()
