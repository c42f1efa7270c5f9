#include "integration/simcuda/torch/number_words.h"

#include <cuda_runtime_api.h>  // before the next two: defines __host__ and __device__, which they use

#include <ATen/cuda/detail/OffsetCalculator.cuh>
#include <ATen/cuda/detail/TensorInfo.cuh>
#include <algorithm>
#include <array>
#include <cstring>
#include <new>

namespace simcuda::ops {
namespace {

constexpr int kOperands = 3;

// The numbers in TensorListMetadata, for lists of three (ATen/native/cuda/MultiTensorApply.cuh of PyTorch
// 2.11, which only nvcc compiles).
constexpr int kMaxTensors = 48;
constexpr int kMaxBlocks = 320;
constexpr int64_t kChunkElements = 65536;
struct ListNumbers {
  int64_t numel_for_tensor[kMaxTensors];
  unsigned char block_to_tensor[kMaxBlocks];
  int block_to_chunk[kMaxBlocks];
  int start_tensor_this_launch;
};

struct Numbers {
  OffsetCalculator<kOperands> elementwise;
  at::cuda::detail::TensorInfo<char, uint32_t> layout;
};

// Sizes and, in bytes, the strides of the largest tensor and of those that broadcast to it, the fastest dimension first.
struct Loop {
  int dimensions = 0;
  std::array<int64_t, MAX_DIMS> sizes{};
  std::array<std::array<int64_t, MAX_DIMS>, kOperands> strides{};
};

Loop LoopOver(const std::vector<const c10::TensorImpl*>& tensors) {
  Loop loop;
  const auto largest = std::max_element(tensors.begin(), tensors.end(),
                                        [](const auto* a, const auto* b) { return a->numel() < b->numel(); });
  if (largest == tensors.end() || (*largest)->numel() == 0) return loop;
  // PyTorch splits what 32 bits cannot count, and allows no more dimensions.
  if ((*largest)->numel() > INT32_MAX || (*largest)->dim() > MAX_DIMS - 1) return loop;
  const c10::IntArrayRef shape = (*largest)->sizes();
  loop.dimensions = static_cast<int>(shape.size());
  std::reverse_copy(shape.begin(), shape.end(), loop.sizes.begin());
  for (size_t operand = 0; operand < std::min<size_t>(kOperands, tensors.size()); ++operand) {
    const c10::TensorImpl& tensor = *tensors[operand];
    for (int64_t i = 0; i < std::min<int64_t>(loop.dimensions, tensor.dim()); ++i) {
      const int64_t from_last = tensor.dim() - 1 - i;
      if (tensor.sizes()[from_last] == loop.sizes[i])
        loop.strides[operand][i] = tensor.strides()[from_last] * static_cast<int64_t>(tensor.itemsize());
    }
  }
  return loop;
}

// Both are made in zeros, since PyTorch leaves dimensions that are not there as they are.
void AppendNumbers(const Loop& loop, std::vector<uint64_t>* words) {
  alignas(uint64_t) std::array<std::byte, (sizeof(Numbers) + 7) / 8 * 8> bytes{};
  auto* const numbers = reinterpret_cast<Numbers*>(bytes.data());
  const int64_t* strides[kOperands];
  for (int i = 0; i < kOperands; ++i) strides[i] = loop.strides[i].data();
  new (&numbers->elementwise) OffsetCalculator<kOperands>(loop.dimensions, loop.sizes.data(), strides);
  uint32_t layout_sizes[MAX_DIMS] = {};
  uint32_t layout_strides[MAX_DIMS] = {};
  for (int i = 0; i < loop.dimensions; ++i) {
    layout_sizes[i] = static_cast<uint32_t>(loop.sizes[loop.dimensions - 1 - i]);
    layout_strides[i] = static_cast<uint32_t>(loop.strides[0][loop.dimensions - 1 - i]);
  }
  // Its address is among the launch's.
  new (&numbers->layout)
      at::cuda::detail::TensorInfo<char, uint32_t>(nullptr, loop.dimensions, layout_sizes, layout_strides);
  const size_t before = words->size();
  words->resize(before + bytes.size() / sizeof(uint64_t));
  std::memcpy(words->data() + before, bytes.data(), bytes.size());
}

// The first launch of a list: as many blocks as one launch has.
void AppendListNumbers(const std::vector<const c10::TensorImpl*>& tensors, std::vector<uint64_t>* words) {
  ListNumbers numbers = {};
  int block = 0;
  for (int i = 0; i < static_cast<int>(std::min<size_t>(kMaxTensors, tensors.size())); ++i) {
    numbers.numel_for_tensor[i] = tensors[i]->numel();
    const int64_t chunks = (tensors[i]->numel() + kChunkElements - 1) / kChunkElements;
    for (int64_t chunk = 0; chunk < chunks && block < kMaxBlocks; ++chunk, ++block) {
      numbers.block_to_tensor[block] = static_cast<unsigned char>(i);
      numbers.block_to_chunk[block] = static_cast<int>(chunk);
    }
  }
  const size_t before = words->size();
  words->resize(before + (sizeof(numbers) + 7) / 8);
  std::memcpy(words->data() + before, &numbers, sizeof(numbers));
}

}  // namespace

std::vector<uint64_t> NumberWords(const std::vector<const c10::TensorImpl*>& tensors, bool lists) {
  std::vector<uint64_t> words;
  AppendNumbers(LoopOver(tensors), &words);
  if (lists) AppendListNumbers(tensors, &words);
  return words;
}

}  // namespace simcuda::ops
