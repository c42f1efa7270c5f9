#include "allocator/memory/block_id.h"

#include <algorithm>

namespace spillway::allocator {

void AccessSet::Sort() { std::sort(blocks_.begin(), blocks_.end()); }

}  // namespace spillway::allocator
