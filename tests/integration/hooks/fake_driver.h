// A driver of recording functions: each symbol of driver_symbols.def is a function of the right type that
// notes its arguments and returns what the test wants. Some answer as a driver would (device, names,
// layouts).

#ifndef SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_DRIVER_H_
#define SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_DRIVER_H_

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "integration/hooks/hook_rows.h"
#include "integration/hooks/hook_table.h"

namespace spillway::integration {

struct FakeDriver {
  struct Call {
    std::string symbol;
    std::vector<unsigned char> arguments;  // one behind the other
  };
  // By symbol: results to give, the first first; then `result`.
  std::map<std::string, std::vector<CUresult>> results;
  // Where an address lies: it does not know it, as of pageable host memory.
  CUresult pointer_answer = CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  std::vector<Call> calls;
  std::map<std::string, void*> wrappers;   // as installed
  std::map<std::string, void*> overrides;  // functions of the test's own
  std::vector<std::string> absent;         // symbols that this driver lacks
  std::vector<std::string> refused;        // symbols whose wrapper is not accepted
  int device = 0;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  uint64_t capture_id = 7;
  unsigned int memory_type = 0;  // of any pointer asked for; 0: unknown to the driver
  std::vector<size_t> param_sizes;
  std::string kernel_name = "test_kernel";  // of every kernel
  bool layouts = true;
  unsigned int counts = 0;  // kernels of any module or library

  static FakeDriver& Get() {
    static FakeDriver driver;
    return driver;
  }

  template <typename... A>
  static std::vector<unsigned char> Pack(A... arguments) {
    std::vector<unsigned char> bytes;
    [[maybe_unused]] const auto add = [&bytes](const auto& argument) {
      const auto* first = reinterpret_cast<const unsigned char*>(&argument);
      bytes.insert(bytes.end(), first, first + sizeof(argument));
    };
    (add(arguments), ...);
    return bytes;
  }

  size_t CountOf(const std::string& symbol) const {
    size_t count = 0;
    for (const Call& call : calls) count += call.symbol == symbol;
    return count;
  }

  // Installs the product's wrappers over a driver like this.
  HookReport Install();

  // The wrapper of a row, to be called as the application does.
  template <Row R>
  typename RowTraits<R>::Function Hooked() const {
    return reinterpret_cast<typename RowTraits<R>::Function>(wrappers.at(RowTraits<R>::kInfo.symbol));
  }
};

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_HOOKS_FAKE_DRIVER_H_
