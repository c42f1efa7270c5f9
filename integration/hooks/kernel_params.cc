#include "integration/hooks/kernel_params.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstring>

#include "allocator/driver/cuda_driver.h"

namespace spillway::integration {
namespace {

using allocator::AccessSet;
using allocator::AddressMap;

// A malformed `extra` list must not be followed forever; CUDA defines two keys.
constexpr int kMaxExtraKeys = 8;

inline uint64_t WordAt(const char* bytes, size_t index) {
  uint64_t word;
  std::memcpy(&word, bytes + index * sizeof(word), sizeof(word));
  return word;
}

inline void ScanOneByOne(const char* bytes, size_t words, const AddressMap& map, AccessSet* set) {
  for (size_t i = 0; i < words; ++i) map.Collect(WordAt(bytes, i), set);
}

void ScanLayoutOneByOne(const void* const* params, const ParamLayout& layout, const AddressMap& map,
                        AccessSet* set) {
  // Copies in registers: the compiler cannot know that adding to the set leaves the map and the layout alone.
  const uint64_t base = map.base();
  const uint64_t total = map.total_bytes();
  const ParamLayout::Entry* const end = layout.entries().data() + layout.entries().size();
  for (const ParamLayout::Entry* entry = layout.entries().data(); entry != end; ++entry) {
    const char* bytes = static_cast<const char*>(params[entry->index]);
    if (__builtin_expect(bytes == nullptr, 0)) continue;
    uint32_t left = entry->words;
    do {
      const uint64_t offset = WordAt(bytes, 0) - base;
      if (offset < total) map.CollectInside(offset, set);
      bytes += sizeof(uint64_t);
    } while (__builtin_expect(--left != 0, 0));
  }
}

#if defined(__x86_64__)

#define SPILLWAY_AVX2 __attribute__((target("avx2")))

// Scans sixteen words at a time, with one comparison for every four and one branch for all.
class VectorScan {
 public:
  SPILLWAY_AVX2 VectorScan(const AddressMap& map, AccessSet* set)
      : map_(map),
        set_(set),
        base_(_mm256_set1_epi64x(static_cast<int64_t>(map.base() ^ kTopBit))),
        total_(_mm256_set1_epi64x(static_cast<int64_t>(map.total_bytes() ^ kTopBit))) {}

  SPILLWAY_AVX2 void Scan(const char* bytes, size_t words) const {
    const char* const end = bytes + words * sizeof(uint64_t);
    for (; bytes + 128 <= end; bytes += 128) {
      const __m256i a = Inside(bytes), b = Inside(bytes + 32), c = Inside(bytes + 64), d = Inside(bytes + 96);
      const __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
      if (_mm256_testz_si256(any, any) != 0) continue;
      CollectFound(bytes, Bits(a) | Bits(b) << 4 | Bits(c) << 8 | Bits(d) << 12);
    }
    for (; bytes + 32 <= end; bytes += 32) CollectFound(bytes, Bits(Inside(bytes)));
    for (; bytes < end; bytes += 8) map_.Collect(WordAt(bytes, 0), set_);
  }

 private:
  // Flips both sides of the unsigned comparison address - base < total, so that it can be made with signed
  // numbers.
  static constexpr uint64_t kTopBit = uint64_t{1} << 63;

  SPILLWAY_AVX2 __m256i Inside(const char* four) const {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(four));
    return _mm256_cmpgt_epi64(total_, _mm256_sub_epi64(words, base_));
  }
  SPILLWAY_AVX2 static uint32_t Bits(__m256i mask) {
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(mask)));
  }
  SPILLWAY_AVX2 void CollectFound(const char* bytes, uint32_t found) const {
    for (; found != 0; found &= found - 1) {
      map_.CollectInside(WordAt(bytes, static_cast<size_t>(__builtin_ctz(found))) - map_.base(), set_);
    }
  }

  const AddressMap& map_;
  AccessSet* const set_;
  const __m256i base_;
  const __m256i total_;
};

SPILLWAY_AVX2 void ScanLayoutByVector(const void* const* params, const ParamLayout& layout,
                                      const AddressMap& map, AccessSet* set) {
  const VectorScan scan(map, set);
  for (const ParamLayout::Entry& entry : layout.entries()) {
    const char* const param = static_cast<const char*>(params[entry.index]);
    if (param == nullptr) continue;
    if (entry.words == 1) {
      map.Collect(WordAt(param, 0), set);
    } else {
      scan.Scan(param, entry.words);
    }
  }
}

SPILLWAY_AVX2 void ScanBytesByVector(const char* bytes, size_t words, const AddressMap& map, AccessSet* set) {
  VectorScan(map, set).Scan(bytes, words);
}

// Costs a load and a test, since libgcc asks the processor before any code of ours runs.
inline bool HasVector() { return __builtin_cpu_supports("avx2") != 0; }

#else

constexpr bool HasVector() { return false; }
void ScanLayoutByVector(const void* const*, const ParamLayout&, const AddressMap&, AccessSet*) {}
void ScanBytesByVector(const char*, size_t, const AddressMap&, AccessSet*) {}

#endif

}  // namespace

void ParamLayout::Append(size_t bytes) {
  const uint32_t index = count_++;
  wide_ |= bytes >= 128;
  if (bytes < sizeof(uint64_t)) return;
  entries_.push_back({index, static_cast<uint32_t>(bytes / sizeof(uint64_t))});
  has_long_ = has_long_ || entries_.back().words >= kLongWords;
}

bool operator==(const ParamLayout& a, const ParamLayout& b) {
  if (a.count_ != b.count_ || a.entries_.size() != b.entries_.size()) return false;
  for (size_t i = 0; i < a.entries_.size(); ++i) {
    if (a.entries_[i].index != b.entries_[i].index || a.entries_[i].words != b.entries_[i].words)
      return false;
  }
  return true;
}

void ScanKernelParams(const void* const* params, const ParamLayout& layout, const AddressMap& map,
                      AccessSet* set, ScanWay way) {
  if (layout.has_long() && way == ScanWay::kBest && HasVector()) {
    ScanLayoutByVector(params, layout, map, set);
  } else {
    ScanLayoutOneByOne(params, layout, map, set);
  }
}

void ScanBytes(const void* bytes, size_t size, const AddressMap& map, AccessSet* set, ScanWay way) {
  const size_t words = size / sizeof(uint64_t);
  if (words >= ParamLayout::kLongWords && way == ScanWay::kBest && HasVector()) {
    ScanBytesByVector(static_cast<const char*>(bytes), words, map, set);
  } else {
    ScanOneByOne(static_cast<const char*>(bytes), words, map, set);
  }
}

ExtraBuffer FindExtraBuffer(void* const* extra) {
  ExtraBuffer found;
  const size_t* size = nullptr;
  for (int i = 0; extra != nullptr && i < kMaxExtraKeys && extra[2 * i] != CU_LAUNCH_PARAM_END; ++i) {
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
