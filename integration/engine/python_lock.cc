#include "integration/engine/python_lock.h"

#include <dlfcn.h>

namespace spillway::integration {
namespace {

template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

}  // namespace

PythonLock::PythonLock() {
  // PyGILState_Check returns 1 before Python has begun.
  const auto begun = Find<int (*)()>("Py_IsInitialized");
  const auto has_lock = Find<int (*)()>("PyGILState_Check");
  const auto let_go = Find<void* (*)()>("PyEval_SaveThread");
  if (begun == nullptr || has_lock == nullptr || let_go == nullptr) return;
  if (begun() != 0 && has_lock() == 1) state_ = let_go();
}

PythonLock::~PythonLock() {
  if (state_ != nullptr) Find<void (*)(void*)>("PyEval_RestoreThread")(state_);
}

}  // namespace spillway::integration
