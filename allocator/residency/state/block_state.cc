#include "allocator/residency/state/block_state.h"

namespace spillway::allocator {
namespace {

constexpr uint8_t Bit(BlockState state) { return static_cast<uint8_t>(1u << static_cast<int>(state)); }

// Row: from; bits: the states that it may go to.
constexpr uint8_t kLegal[kBlockStates] = {
    /* kFree */ Bit(BlockState::kEmpty),
    /* kEmpty */ Bit(BlockState::kResident) | Bit(BlockState::kFree),
    /* kResident */ Bit(BlockState::kEvicting) | Bit(BlockState::kEmpty) | Bit(BlockState::kCached),
    /* kEvicting */ Bit(BlockState::kSpilled) | Bit(BlockState::kResident) | Bit(BlockState::kCached) |
        Bit(BlockState::kFree),
    /* kSpilled */ Bit(BlockState::kFaulting) | Bit(BlockState::kFree),
    /* kFaulting */ Bit(BlockState::kResident) | Bit(BlockState::kSpilled) | Bit(BlockState::kLost) |
        Bit(BlockState::kCached),
    /* kCached */ Bit(BlockState::kResident) | Bit(BlockState::kFree),
    /* kLost */ Bit(BlockState::kFree),
};

}  // namespace

const char* NameOf(BlockState state) {
  static constexpr const char* kNames[kBlockStates] = {"kFree",    "kEmpty",    "kResident", "kEvicting",
                                                       "kSpilled", "kFaulting", "kCached",   "kLost"};
  return kNames[static_cast<int>(state)];
}

bool CanTransition(BlockState from, BlockState to) { return (kLegal[static_cast<int>(from)] & Bit(to)) != 0; }

}  // namespace spillway::allocator
