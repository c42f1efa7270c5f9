#include "allocator/driver/content_hash.h"

namespace spillway::allocator::content_hash {

const char* KernelPtx() {
  return
#include "allocator/driver/content_hash.ptx.inc"
      ;
}

}  // namespace spillway::allocator::content_hash
