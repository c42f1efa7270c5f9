// Sets of blocks as launches name them, for tests of prediction: what a launch reads and writes is given by the
// numbers of its blocks.

#ifndef SPILLWAY_TESTS_INTEGRATION_PREDICTION_ACCESS_SETS_H_
#define SPILLWAY_TESTS_INTEGRATION_PREDICTION_ACCESS_SETS_H_

#include <cstdint>
#include <initializer_list>

#include "allocator/memory/block_id.h"

namespace spillway::integration {

// Blocks of the first device, by their indexes.
inline allocator::AccessSet SetOf(std::initializer_list<uint32_t> blocks) {
  allocator::AccessSet set;
  for (const uint32_t block : blocks) set.Add(allocator::BlockId(0, block));
  return set;
}

}  // namespace spillway::integration

#endif  // SPILLWAY_TESTS_INTEGRATION_PREDICTION_ACCESS_SETS_H_
