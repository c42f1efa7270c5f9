// Module images: the kernels and variables that they name. Three kinds are read: ours (text, see simcuda.h),
// PTX text, and ELF cubins. No device code is kept; the names are bound to registered host functions. PTX and
// cubins give the layout of a kernel's parameters, too. Pure; thread-safe.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_IMAGE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_IMAGE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "integration/simcuda/driver/simcuda.h"

namespace simcuda {

struct ImageKernel {
  std::string name;
  long parameters = -1;  // how many it takes; -1: not given
  bool has_layout = false;
  std::vector<simcuda_parameter> layout;  // ascending
};

struct ImageGlobal {
  std::string name;
  size_t bytes;
};

struct ImageContents {
  std::vector<ImageKernel> kernels;
  std::vector<ImageGlobal> globals;  // of images of ours only
};

// Reads the names in the image. Returns false if it is of no known kind, or malformed. The image's length is
// in the image.
bool ReadImage(const void* image, ImageContents* contents);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_KERNELS_IMAGE_H_
