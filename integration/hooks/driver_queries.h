// FunctionQueries over the real driver: layouts, names and owners of kernel handles.

#ifndef SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_

#include <string>

#include "integration/hooks/function_registry.h"
#include "integration/hooks/hook_rows.h"
#include "integration/hooks/module_origins.h"

namespace spillway::integration {

class DriverFunctionQueries : public FunctionQueries {
 public:
  // Before the first query. Both must outlive this.
  void SetTable(const RealTable* real, const ModuleOrigins* origins) {
    real_ = real;
    origins_ = origins;
  }

  Answer ParamSize(void* handle, bool is_kernel, size_t index, size_t* bytes) const override;
  bool Name(void* handle, bool is_kernel, std::string* name) const override;
  void* Owner(void* handle, bool is_kernel) const override;
  std::string LibraryOf(void* owner) const override;

 private:
  const RealTable* real_ = nullptr;
  const ModuleOrigins* origins_ = nullptr;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_
