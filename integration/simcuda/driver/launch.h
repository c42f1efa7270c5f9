// The geometry of one launch.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_LAUNCH_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_LAUNCH_H_

namespace simcuda {

struct LaunchShape {
  unsigned int grid[3];
  unsigned int block[3];
  unsigned int shared_bytes;
};

}  // namespace simcuda

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_DRIVER_LAUNCH_H_
