/* A stand-in for libnvidia-ml.so.1: one device, whose energy is the number in the file that STUB_NVML_ENERGY names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device);
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules);

static int a_device;

EXPORT int nvmlInit_v2(void) { return 0; }

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  if (strcmp(bus_id, "0000:65:00.0") != 0) return 6; /* not found */
  *device = &a_device;
  return 0;
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  FILE* file = fopen(getenv("STUB_NVML_ENERGY"), "r");
  if (device != &a_device || file == NULL) return 3; /* not supported */
  const int read = fscanf(file, "%llu", millijoules);
  fclose(file);
  return read == 1 ? 0 : 999;
}
