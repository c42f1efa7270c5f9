// EscapeHookTest: the wrappers over fakes, with helpers for what escaped pointers need.
// TensorMapHookTest: the same, with tensor maps.

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPE_FIXTURE_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPE_FIXTURE_H_

#include <cstring>
#include <vector>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {

using allocator::PinReason;

inline constexpr uint64_t kExternal = 0x10000;

class EscapeHookTest : public HookTest {
 protected:
  EscapeHookTest() { Publish(); }

  static HookState* state() { return GetHookState(); }
  int PinsOf(uint32_t index, PinReason reason = PinReason::kPointerTable) const {
    return residency_[0].PinsOf(Id(index), reason);
  }
  // A table of these blocks' addresses, copied to `destination`.
  CUresult Upload(uint64_t destination, const std::vector<uint32_t>& blocks, CUstream stream = Stream(1)) {
    std::vector<uint64_t> table;
    for (const uint32_t index : blocks) table.push_back(Address(index));
    return driver().Hooked<Row::cuMemcpyHtoDAsync_v2>()(destination, table.data(), table.size() * 8, stream);
  }
  CUresult LaunchParam(void* param, CUstream stream = Stream(1)) {
    void* params[] = {param};
    return driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
  }
};

class TensorMapHookTest : public EscapeHookTest {
 protected:
  struct Struct {
    char before[64] = {};
    CUtensorMap map = {};
    char behind[32] = {};
  };
  // The fake driver encodes nothing: the bytes are the test's own, an address nowhere among them.
  static void Fill(CUtensorMap* map, int with) { std::memset(map, with, sizeof(*map)); }
  CUresult Encode(CUtensorMap* map, uint64_t address) {
    const cuuint64_t sizes[2] = {64, 16};
    const cuuint64_t strides[1] = {256};
    return driver().Hooked<Row::cuTensorMapEncodeTiled>()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
                                                          reinterpret_cast<void*>(address), sizes, strides,
                                                          nullptr, nullptr, {}, {}, {}, {});
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_ESCAPE_FIXTURE_H_
