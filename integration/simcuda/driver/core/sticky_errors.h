// The error codes that end a context: after one of them the device has done its last work for this process,
// and every call that needs the context answers with the code. The list is cuda.h's: codes that "leave the
// process in an inconsistent state", the assert, and the two uncorrectable memory errors. device-errors.md
// has what is known of it.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_STICKY_ERRORS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_STICKY_ERRORS_H_

namespace simcuda {

// Numbers, because the driver's and the runtime's enums share them and older headers lack the newest names.
inline constexpr int kStickyErrors[] = {
    214,  // ECC_UNCORRECTABLE
    220,  // NVLINK_UNCORRECTABLE
    226,  // CONTAINED
    700,  // ILLEGAL_ADDRESS
    702,  // LAUNCH_TIMEOUT
    710,  // ASSERT
    714,  // HARDWARE_STACK_ERROR
    715,  // ILLEGAL_INSTRUCTION
    716,  // MISALIGNED_ADDRESS
    717,  // INVALID_ADDRESS_SPACE
    718,  // INVALID_PC
    719,  // LAUNCH_FAILED
    721,  // TENSOR_MEMORY_LEAK
    911,  // EXTERNAL_DEVICE
};

constexpr bool IsSticky(int error) {
  for (const int sticky : kStickyErrors) {
    if (error == sticky) return true;
  }
  return false;
}

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_CORE_STICKY_ERRORS_H_
