// Driver functions: names and texts of errors. Texts that programs and people look for are written as CUDA
// words them, the others are made of their names.
#include <cctype>
#include <map>
#include <string>

#include "integration/simcuda/driver/core/driver_api.h"
#include "integration/simcuda/driver/core/fail_points.h"

namespace simcuda {
namespace {

struct ErrorText {
  const char* name;
  std::string text;
};

// "CUDA_ERROR_NOT_READY" -> "not ready".
std::string TextOf(const std::string& name) {
  constexpr size_t kPrefix = sizeof("CUDA_ERROR_") - 1;
  std::string text = name.size() > kPrefix && name.compare(0, kPrefix, "CUDA_ERROR_") == 0
                         ? name.substr(kPrefix)
                         : std::string("no error");
  for (char& c : text) c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

constexpr struct {
  int number;
  const char* name;
} kErrors[] = {
#define ERROR_NAME(number, name) {number, #name},
#include "integration/simcuda/driver/api/error_names.def"
#undef ERROR_NAME
};

constexpr struct {
  int number;
  const char* text;
} kTexts[] = {
    {700, "an illegal memory access was encountered"},
    {710, "device-side assert triggered"},
    {719, "unspecified launch failure"},
};

const std::map<int, ErrorText>& Errors() {
  static const auto* errors = [] {
    auto* made = new std::map<int, ErrorText>;
    for (const auto& [number, name] : kErrors) (*made)[number] = {name, TextOf(name)};
    for (const auto& [number, text] : kTexts) (*made)[number].text = text;
    return made;
  }();
  return *errors;
}

}  // namespace
}  // namespace simcuda

SIMCUDA_API CUresult cuGetErrorName(CUresult error, const char** name) {
  SIMCUDA_FAIL_POINT(cuGetErrorName);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto it = simcuda::Errors().find(error);
  *name = it == simcuda::Errors().end() ? nullptr : it->second.name;
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIMCUDA_API CUresult cuGetErrorString(CUresult error, const char** text) {
  SIMCUDA_FAIL_POINT(cuGetErrorString);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto it = simcuda::Errors().find(error);
  *text = it == simcuda::Errors().end() ? nullptr : it->second.text.c_str();
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
