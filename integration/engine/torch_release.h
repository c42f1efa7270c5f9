// Reads the text of PyTorch's version. The engine's library for PyTorch and the doctor ask. Header only,
// since that library is linked to nothing of ours. Pure; cannot fail; thread-safe.

#ifndef SPILLWAY_INTEGRATION_ENGINE_TORCH_RELEASE_H_
#define SPILLWAY_INTEGRATION_ENGINE_TORCH_RELEASE_H_

#include <algorithm>
#include <string_view>

namespace spillway::integration {

// Returns whether the version is a development build: "2.12.0a0+git1234", "2.12.0.dev20260101", "2.11.0rc1"
// are; "2.11.0", "2.11.0+cu130" and "2.1.0.post2" are not. Between two releases the class of PyTorch's
// allocator may have its virtual functions in any order.
inline bool IsDevelopmentBuild(std::string_view release) {
  constexpr std::string_view kDigits = "0123456789";
  for (int number = 0; number < 3; ++number) {
    release.remove_prefix(std::min(release.find_first_not_of(kDigits), release.size()));
    if (number < 2 && release.substr(0, 1) == ".") release.remove_prefix(1);
  }
  return !release.empty() && release.front() != '+' && release.substr(0, 5) != ".post";
}

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_ENGINE_TORCH_RELEASE_H_
