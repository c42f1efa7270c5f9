#include "integration/simcuda/driver/machine/handles.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "integration/simcuda/driver/core/settings.h"
#include "integration/simcuda/driver/machine/stop.h"

namespace simcuda {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kArenaBytes = 128 << 20;  // of address space: pages come with the objects

// In static memory, where leak checkers look for what the objects hold.
alignas(kAlignment) char g_arena[kArenaBytes];
std::atomic<size_t> g_used{0};

const char* NameOf(uint32_t kind) {
  static constexpr const char* kNames[] = {"",         "CUcontext", "CUstream",   "CUevent",
                                           "CUmodule", "CUlibrary", "CUfunction", "CUkernel"};
  return kind < std::size(kNames) ? kNames[kind] : "";
}

// The driver function that the application has called, by the stack of this thread.
const char* CalledFunction() {
  void* frames[32];
  const int count = backtrace(frames, static_cast<int>(std::size(frames)));
  for (int i = 0; i < count; ++i) {
    Dl_info info = {};
    if (dladdr(frames[i], &info) == 0 || info.dli_sname == nullptr) continue;
    if (std::strncmp(info.dli_sname, "cu", 2) == 0) return info.dli_sname;
  }
  return "a driver function";
}

}  // namespace

// A description of a pointer for messages.
class HandleText {
 public:
  explicit HandleText(const void* handle) {
    const HandleObject* const object = FindHandleObject(handle);
    const uint32_t mark = object == nullptr ? 0 : object->mark_.load();
    const char* const name = (mark & ~0xffu) == HandleObject::kMagic ? NameOf(mark >> 4 & 0xf) : "";
    if (handle == nullptr) {
      std::snprintf(text_, sizeof(text_), "it is null");
    } else if (*name == '\0') {
      std::snprintf(text_, sizeof(text_), "this driver has given out no such handle");
    } else if ((mark & HandleObject::kAlive) != 0) {
      std::snprintf(text_, sizeof(text_), "it is a %s", name);
    } else {
      std::snprintf(text_, sizeof(text_), "it was a %s that is gone", name);
    }
  }
  const char* c_str() const { return text_; }

 private:
  char text_[64];
};

void* HandleObject::operator new(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t at = g_used.fetch_add(rounded);
  if (at + rounded > kArenaBytes) {
    std::fprintf(stderr, "simcuda: this process has made more handles than there is memory for\n");
    std::abort();
  }
  return g_arena + at;
}

HandleObject* FindHandleObject(const void* handle) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(g_arena);
  if (at >= g_used.load(std::memory_order_relaxed) || at % kAlignment != 0) return nullptr;
  return static_cast<HandleObject*>(const_cast<void*>(handle));
}

CUresult BadHandle(const void* handle, const char* wanted, CUresult code) {
  return BadHandle(handle, wanted, HandleText(handle).c_str(), code);
}

CUresult BadHandle(const void* handle, const char* wanted, const char* found, CUresult code) {
  if (GetSettings().handles_now() == Handles::kAnswer) return code;
  std::fprintf(stderr, "simcuda: %s takes %s and was given %p: %s\n", CalledFunction(), wanted, handle,
               found);
  StopLoudly();
}

}  // namespace simcuda
