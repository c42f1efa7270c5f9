#include "integration/hooks/kernel_params.h"

#include <cstring>

#include "allocator/driver/cuda_driver.h"

namespace spillway::integration {
namespace {

// A malformed `extra` list must not lead us through memory for ever: CUDA defines two keys.
constexpr int kMostExtraKeys = 8;

inline void ScanWords(const char* bytes, size_t words, const allocator::AddressMap& map,
                      allocator::AccessSet* set) {
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * sizeof(word), sizeof(word));
    map.Collect(word, set);
  }
}

}  // namespace

void ParamLayout::Append(size_t bytes) {
  const uint32_t index = count_++;
  if (bytes >= sizeof(uint64_t)) {
    entries_.push_back({index, static_cast<uint32_t>(bytes / sizeof(uint64_t))});
  }
}

bool operator==(const ParamLayout& a, const ParamLayout& b) {
  if (a.count_ != b.count_ || a.entries_.size() != b.entries_.size()) return false;
  for (size_t i = 0; i < a.entries_.size(); ++i) {
    if (a.entries_[i].index != b.entries_[i].index || a.entries_[i].words != b.entries_[i].words)
      return false;
  }
  return true;
}

void ScanKernelParams(const void* const* params, const ParamLayout& layout, const allocator::AddressMap& map,
                      allocator::AccessSet* set) {
  for (const ParamLayout::Entry& entry : layout.entries()) {
    const void* param = params[entry.index];
    if (param != nullptr) ScanWords(static_cast<const char*>(param), entry.words, map, set);
  }
}

void ScanBytes(const void* bytes, size_t size, const allocator::AddressMap& map, allocator::AccessSet* set) {
  ScanWords(static_cast<const char*>(bytes), size / sizeof(uint64_t), map, set);
}

ExtraBuffer FindExtraBuffer(void* const* extra) {
  ExtraBuffer found;
  const size_t* size = nullptr;
  for (int i = 0; extra != nullptr && i < kMostExtraKeys && extra[2 * i] != CU_LAUNCH_PARAM_END; ++i) {
    const void* key = extra[2 * i];
    void* const value = extra[2 * i + 1];
    if (key == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      found.bytes = value;
    } else if (key == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(value);
    } else {
      return {};
    }
  }
  if (found.bytes == nullptr || size == nullptr) return {};
  found.size = *size;
  return found;
}

}  // namespace spillway::integration
