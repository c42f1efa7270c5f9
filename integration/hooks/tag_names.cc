#include "integration/hooks/tag_names.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string_view>

#include "integration/hooks/function_registry.h"
#include "integration/hooks/hook_rows.h"

namespace spillway::integration {

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string readable = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return readable;
}

std::string CallOfTag(uint64_t tag) {
  std::string_view name;
  ForEachRow([&]<Row R>() {
    if (RowTraits<R>::kInfo.tag == tag) name = BaseNameOf(RowTraits<R>::kSymbol);
  });
  return std::string(name);
}

std::string NameOfTag(FunctionRegistry* functions, uint64_t tag) {
  const FunctionInfo* const info = functions->FindByTag(tag);
  return info != nullptr ? Demangled(info->name) : CallOfTag(tag);
}

}  // namespace spillway::integration
