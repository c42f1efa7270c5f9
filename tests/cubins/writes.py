"""Which of their parameters kernels of PyTorch's only read, for integration/profile/kernel_writes.def.

    python3 -B tests/cubins/writes.py SITE-PACKAGES/torch/lib/libtorch_cuda.so [LIBRARY...] [--update]

Compares the table with the names of the libraries' kernels and the schemas of this Python's PyTorch; --update writes it.
A mangled name has the types of the parameters: `T const*` and `TensorInfo<T const, ...>` are read, `T*` and `TensorInfo<T,
...>` may be written. A kernel is a row if all of its base name, in all libraries, have the same order of the two, results
before operands or behind them, and no parameter whose type does not say. BY_SOURCE has those that are known by PyTorch's
source. Operators (kernels that carry an operator's name, as those of a stand-in device do) go by their schemas.
"""

import argparse
import collections
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import elf
import names

TABLE = Path(__file__).resolve().parents[2] / "integration" / "profile" / "kernel_writes.def"
MOST = 8  # pointers of a row: a kernel of more names more blocks than it is worth
FIRST, LAST = "kResultsFirst", "kResultsLast"

# NAME: (order, operands, results, sure), with the place in PyTorch's source. `sure`: of the pointers that stand first, leading
# ones to tensors no smaller than any other.
BY_SOURCE = {
    # CUDALoops.cuh, Loops.cuh: a TensorIterator's one output stands before its inputs, whatever the functor
    "vectorized_elementwise_kernel": (FIRST, 4, 1, 1),
    "unrolled_elementwise_kernel": (FIRST, 4, 1, 1),
    "elementwise_kernel": (FIRST, 4, 1, 1),
    # Reduce.cuh, struct ReduceOp: src, dst[2], acc_buf, cta_buf
    "reduce_kernel": (LAST, 1, 4, 1),
    # Shape.cu: the output, and the inputs in CatArrInputTensorMetadata
    "CatArrayBatchedCopy": (FIRST, 8, 1, 0),
    "CatArrayBatchedCopy_alignedK_contig": (FIRST, 8, 1, 0),
    "CatArrayBatchedCopy_contig": (FIRST, 8, 1, 0),
    "CatArrayBatchedCopy_vectorized": (FIRST, 8, 1, 0),
    # layer_norm_kernel.cu: X, gamma, beta; mean, rstd, Y. X is as large as Y
    "vectorized_layer_norm_kernel": (LAST, 3, 3, 1),
    # the same: dY, X, mean, rstd; dg, db. dY and X are as large as each other
    "GammaBetaBackwardCUDAKernelTemplate": (LAST, 4, 2, 2),
    # Dropout.cu: a const; b, c
    "fused_dropout_kernel": (LAST, 1, 2, 1),
    "fused_dropout_kernel_vec": (LAST, 1, 2, 1),
}

# Operators of training, with overload.
OPERATORS = set("""
    mm bmm addmm baddbmm mm.out bmm.out addmm.out add.Tensor sub.Tensor mul.Tensor div.Tensor mul.Scalar div.Scalar add.Scalar
    neg exp log sqrt rsqrt abs pow.Tensor_Scalar tanh sigmoid relu gelu silu leaky_relu where.self maximum minimum
    tanh_backward sigmoid_backward threshold_backward gelu_backward silu_backward native_dropout_backward
    add.out sub.out mul.out div.out neg.out exp.out tanh.out sigmoid.out gelu.out gelu_backward.grad_input silu.out tanh_backward.grad_input
    zero_ fill_.Scalar add_.Scalar mul_.Scalar div_.Scalar sqrt_ neg_ exp_ relu_ clamp_ add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor copy_ addcmul_ addcdiv_ lerp_.Scalar lerp_.Tensor masked_fill_.Tensor
    _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data _softmax.out _log_softmax.out _softmax_backward_data.out
    _log_softmax_backward_data.out embedding embedding_dense_backward index_select gather gather.out clone sum.dim_IntList
    sum.IntList_out mean.dim sum convolution_overrideable cudnn_convolution avg_pool2d avg_pool2d.out masked_fill.Scalar
    nll_loss_backward nll_loss_backward.grad_input constant_pad_nd native_layer_norm native_dropout
""".split())  # fmt: skip

SURE = {"native_layer_norm": 1, "native_dropout": 1}  # as in BY_SOURCE
NORMS = {"aten::_foreach_norm.Scalar": (LAST, 8, 0, 0)}  # of a list: the results have an element each, and are no blocks

SCALAR = re.compile(r"(unsigned )?(bool|char|signed char|short|int|long|long long|float|double)( const)?$|c10::(complex<\w+>|Half|BFloat16)( const)?$"
                    r"|at::PhiloxCudaState$|std::(multiplies|plus)<.*>$")  # fmt: skip
TENSOR = re.compile(r"(at::cuda::detail::TensorInfo|torch::headeronly::detail::GenericPackedTensorAccessor|at::GenericPackedTensorAccessor)<")


def kernel_names(data):
    """The mangled names of kernels in a library's data: they are registered by them, and each has a stub on the host."""
    stubs = {base_name("_Z" + found[1].decode()) for found in re.finditer(rb"__device_stub__Z(\w+)", data)}
    for found in re.finditer(rb"\0(_ZN(?:2at6native|\d+_GLOBAL__N_)\w+)(?=\0)", data):
        name = found[1].decode()
        if base_name(name) in stubs:
            yield name


def base_name(name):
    """As KernelBaseName of integration/profile."""
    rest, last = re.sub(r"^_ZN?", "", name), ""
    while found := re.match(r"L?(\d+)", rest):
        end = found.end() + int(found[1])
        last, rest = rest[found.end() : end], rest[end:]
    return last


def role(kind):
    """"r": only read; "w": may be written; "": no memory; None: the type does not say."""
    if kind.endswith("*"):
        inner = kind[:-1].rstrip()
        return None if "*" in inner or "void" in inner else "r" if inner.endswith(" const") else "w"
    if TENSOR.match(kind):
        return "r" if re.search(r"[\w>] const,", kind) else "w"
    return "" if SCALAR.match(kind) else None


def shape_of(readable):
    """The roles of the memory that a kernel names, in order; None: not known."""
    roles = [role(kind) for kind in elf.last_types(readable)] if readable.endswith(")") else [None]
    return None if None in roles else "".join(roles)


def row_of(shapes):
    """(order, operands, results, sure) of kernels of these shapes; None: they have no row."""
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    found = shape and len(shape) <= MOST and (re.fullmatch("(?P<w>w+)(?P<r>r*)", shape) or re.fullmatch("(?P<r>r+)(?P<w>w+)", shape))
    return (FIRST if shape[0] == "w" else LAST, len(found["r"]), len(found["w"]), 0) if found else None


def rows_by_types(libraries):
    """Rows of kernels, and for each base name the shapes that its kernels have."""
    shapes = collections.defaultdict(set)
    mangled = sorted({name for library in libraries for name in kernel_names(library.read_bytes())})
    for name, readable in zip(mangled, names.demangle(mangled)):
        if readable.startswith("void "):  # a kernel, and no object of its host code
            shapes[base_name(name)].add(shape_of(readable))
    rows = {name: row_of(found) for name, found in shapes.items()}
    return {name: row for name, row in rows.items() if row and row[1] > 0}, shapes  # what is written is so anyway


def contradictions(shapes):
    """What the types say against BY_SOURCE."""
    for name, (order, operands, results, _) in BY_SOURCE.items():
        if name not in shapes:
            yield f"{name}: no library has such a kernel"
            continue
        row = row_of(shapes[name])
        if row and row[:3] != (order, operands, results):
            yield f"{name}: by its types it is {row[:3]}"


def tensors(arguments):
    """"r" or "w" for each tensor; None where a list makes their number unknown."""
    roles = []
    for argument in arguments:
        kind = str(argument.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            roles.append("w" if argument.alias_info is not None and argument.alias_info.is_write else "r")
        elif "Tensor" in kind:
            return None
    return "".join(roles)


def rows_by_schema():
    """Rows of OPERATORS: all arguments stand before what is returned anew."""
    import torch

    rows = {}
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
        if name.removeprefix("aten::") not in OPERATORS:
            continue
        arguments = tensors(schema.arguments)
        new = sum(1 for one in schema.returns if str(one.type) == "Tensor" and one.alias_info is None)
        if arguments and (row := row_of({arguments + "w" * new})):
            # What is written in place is at least as large as what is broadcast to it.
            in_place = 1 if schema.name.endswith("_") and row[0] == FIRST else 0
            rows[name] = (*row[:3], SURE.get(schema.name.removeprefix("aten::"), in_place))
    return {**rows, **NORMS}


def table_of(rows):
    head = TABLE.read_text().split('\nKERNEL("', 1)[0].rstrip("\n") if TABLE.is_file() else ""
    lines = [f'KERNEL("{name}", {", ".join(map(str, row))})' for name, row in sorted(rows.items())]
    return "\n".join([head, "", *lines, "#undef KERNEL", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, nargs="+")
    parser.add_argument("--update", action="store_true", help="write the table")
    args = parser.parse_args()
    kernels, shapes = rows_by_types(args.library)
    problems = list(contradictions(shapes))
    rows = {**kernels, **BY_SOURCE, **rows_by_schema()}
    text = table_of(rows)
    if args.update:
        TABLE.write_text(text)
    elif text != TABLE.read_text():
        problems.append(f"{TABLE.name} differs: --update writes it")
    print(f"{len(rows)} rows: {len(kernels.keys() - BY_SOURCE)} by types of {len(shapes)} names, {len(BY_SOURCE)} by source, "
          f"{len(rows) - len(kernels.keys() | BY_SOURCE)} operators")  # fmt: skip
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
