// FunctionQueries over the real driver: layouts, names and owners of kernel handles.

#ifndef SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_
#define SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_

#include <string>

#include "integration/hooks/function_registry.h"
#include "integration/hooks/hook_rows.h"

namespace spillway::integration {

class DriverFunctionQueries : public FunctionQueries {
 public:
  // Before the first query. The table must outlive this.
  void SetTable(const RealTable* real) { real_ = real; }

  Answer ParamSize(void* handle, bool is_kernel, size_t index, size_t* bytes) const override;
  bool Name(void* handle, bool is_kernel, std::string* name) const override;
  void* Owner(void* handle, bool is_kernel) const override;

 private:
  const RealTable* real_ = nullptr;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_HOOKS_DRIVER_QUERIES_H_
