"""The rules by which writes.py makes rows of names and schemas, and that the table is what they make of itself."""

import re
import unittest

import writes

LAYER_NORM = ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*, float const*, "
              "float const*, float*, float*, float*)")  # fmt: skip
DROPOUT = ("void k<float>(at::cuda::detail::TensorInfo<float const, unsigned int>, at::cuda::detail::TensorInfo<float, unsigned int>, "
           "unsigned int, float, at::PhiloxCudaState)")  # fmt: skip


class NamesTest(unittest.TestCase):
    def test_base_name_is_the_last_before_the_arguments(self):
        self.assertEqual(writes.base_name("_ZN2at6native13reduce_kernelILi512EEEvT_"), "reduce_kernel")
        self.assertEqual(writes.base_name("_ZN2at6nativeL4copyEPf"), "copy")

    def test_kernels_have_a_stub(self):
        stub = b"\0_ZGVZL40__device_stub__ZN2at6native4copyIfEEvPT_PfE5__tmp\0"
        data = stub + b"\0_ZN2at6native4copyIfEEvPT_\0_ZN2at6native4hostIfEEvPT_\0_ZN4mine4copyIfEEvPT_\0"
        self.assertEqual(list(writes.kernel_names(data)), ["_ZN2at6native4copyIfEEvPT_"])


class ShapeTest(unittest.TestCase):
    def test_const_is_read_and_all_else_may_be_written(self):
        self.assertEqual(writes.shape_of(LAYER_NORM), "rrrwww")
        self.assertEqual(writes.shape_of(DROPOUT), "rw")

    def test_what_the_type_does_not_say_is_not_known(self):
        for types in ("float**", "void*", "void const*", "float const* const*", "Params", "char*, std::array<char*, 3ul>"):
            self.assertIsNone(writes.shape_of(f"void k({types})"), types)
        self.assertIsNone(writes.shape_of("k"), "a C name")

    def test_a_row_has_one_side_first(self):
        self.assertEqual(writes.row_of({"wrr"}), (writes.FIRST, 2, 1, 0))
        self.assertEqual(writes.row_of({"rrw"}), (writes.LAST, 2, 1, 0))
        self.assertEqual(writes.row_of({"ww"}), (writes.FIRST, 0, 2, 0))
        for shapes in ({"rwr"}, {"wrw"}, {"r"}, {""}, {None}, {"rw", "wr"}, {"rw", None}, {"r" * 8 + "w"}):
            self.assertIsNone(writes.row_of(shapes), shapes)

    def test_types_that_contradict_the_source_are_found(self):
        shapes = {name: {None} for name in writes.BY_SOURCE}
        self.assertEqual(list(writes.contradictions(shapes)), [])
        shapes["reduce_kernel"] = {"wr"}
        self.assertEqual(len(list(writes.contradictions(shapes))), 1)
        del shapes["reduce_kernel"]
        self.assertIn("reduce_kernel: no library has such a kernel", list(writes.contradictions(shapes)))


class TableTest(unittest.TestCase):
    def test_is_sorted_and_has_what_is_known_by_source(self):
        rows = dict(re.findall(r'^KERNEL\("(\S+)", (.*)\)$', writes.TABLE.read_text(), re.MULTILINE))
        self.assertEqual(list(rows), sorted(rows))
        for name, row in writes.BY_SOURCE.items():
            self.assertEqual(rows[name], ", ".join(map(str, row)))
        self.assertGreater(len(rows), 100)

    def test_is_written_with_its_head(self):
        text = writes.table_of({"b": (writes.LAST, 1, 2, 0), "a": (writes.FIRST, 1, 1, 0)})
        self.assertTrue(text.startswith("// What kernels of PyTorch's own write, and only read"))
        self.assertTrue(text.endswith('\nKERNEL("a", kResultsFirst, 1, 1, 0)\nKERNEL("b", kResultsLast, 1, 2, 0)\n#undef KERNEL\n'))


if __name__ == "__main__":
    unittest.main()
