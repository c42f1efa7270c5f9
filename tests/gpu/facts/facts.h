// Facts about a device and its driver that Spillway's design rests on and that only hardware can answer. Each
// function measures one and returns its figures; gpu_facts runs one of them in a process, since some may
// crash or end the context. They judge nothing: visit.py shows them, and on simcuda counts them as unanswered.

#ifndef SPILLWAY_TESTS_GPU_FACTS_FACTS_H_
#define SPILLWAY_TESTS_GPU_FACTS_FACTS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/gpu/gpu.h"

namespace spillway::gpu {

using Json = nlohmann::json;

struct FactSetup {
  bool small = false;      // sizes and counts that simcuda's memory and speed allow
  std::string variant;     // which of a fact's cases; empty: all, or the first
  uint64_t leave = 0;      // `full`: bytes that stay free
  double row_seconds = 5;  // `latency`: the most that a row may take, whatever it has counted by then
};

// Bytes of the device, free and in all, and what it says of handles in host memory (attributes 134, 141, 145, 147).
Json DeviceMemory(const FactSetup& setup);
// Where a reservation of 4 TiB lies, without a hint and with each of the product's.
Json Placement(const FactSetup& setup);
// Offset and size of each parameter, as told of a function and of a kernel of a library.
Json ParameterLayouts(const FactSetup& setup);
// GB/s of the content hash over a large block.
Json HashCost(const FactSetup& setup);
// GB/s of pinning and unpinning a slab as the host tier does it.
Json PinningCost(const FactSetup& setup);
// A handle at a host location, mapped where a device's was: the calls' results, what a swap costs, rates of kernels
// and copies there, and whether a direct read of a file goes there.
Json HostHandle(const FactSetup& setup);
// The names of the cases of `handles`; each crashes the process that asks on some drivers.
std::vector<std::string> HandleCases();
// What a query answers that is given a handle of the other kind, null, or one whose module is gone.
Json Handles(const FactSetup& setup);
// Where an address stands in the 128 bytes of an encoded tensor map, and whether two encodings are equal.
Json TensorMapWords(const FactSetup& setup);
// p50, p99 and p99.9 of a launch on one thread: alone, beside a kernel that is bound by memory, and beside
// another thread that maps and unmaps, for handles of several sizes. A row has the launches of row_seconds.
Json LaunchLatency(const FactSetup& setup);
// Pinned copies by size: each direction alone, and both together as seen by each.
Json CopyRates(const FactSetup& setup);
// How long loading a module, finding its function and its first launch take while the device is busy: the
// caller sets CUDA_MODULE_LOADING.
Json ModuleLoading(const FactSetup& setup);
// What pointer attributes say of plain, mapped, unmapped and freed memory: how many bytes an answer that is
// true or false has, and whether the range of a block of several handles is one handle's or the block's.
Json PointerAttributes(const FactSetup& setup);
// One handle at two addresses, the second for reading only. Variant "write": a kernel writes through that one,
// which may end the context.
Json TwoMappings(const FactSetup& setup);
// Reservations of up to 64 TiB of addresses, each with a handle mapped at its end.
Json Reservations(const FactSetup& setup);
// What cuMemRetainAllocationHandle answers for an address of each kind.
Json RetainedHandles(const FactSetup& setup);
// The calls that wait for the GPU, behind which Stalls looks at other threads.
std::vector<std::string> StallCases();
// p50 and p99 of an event query, a launch and a remap on one thread while another is inside one of StallCases.
Json Stalls(const FactSetup& setup);
// Takes all device memory but `leave`, says so on standard output, and keeps it until standard input ends.
Json FullDevice(const FactSetup& setup);

// The driver's function of that name; null where it has none.
template <typename F>
F Find(const char* name) {
  return reinterpret_cast<F>(Gpu::Get().Symbol(name));
}

// The value below which that part of the values lies; 0 for none.
double Quantile(std::vector<double> values, double part);

}  // namespace spillway::gpu

#endif  // SPILLWAY_TESTS_GPU_FACTS_FACTS_H_
