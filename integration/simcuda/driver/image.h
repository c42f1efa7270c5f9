// Module images: which kernels they name. Three kinds are read: ours (text, see simcuda.h), PTX text, and ELF
// cubins. No device code is kept; the names are bound to registered host functions.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_IMAGE_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_IMAGE_H_

#include <string>
#include <vector>

namespace simcuda {

// The kernels that the image names; false when it is of no known kind. The image's length is in the image.
bool ReadImage(const void* image, std::vector<std::string>* kernels);

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_IMAGE_H_
