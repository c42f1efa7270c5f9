// CPU aliases of CUDA storages: a CPU storage over the same memory, one per device storage and call, so that
// arguments that share a storage keep sharing. cuda_operator.cc makes them on the caller's thread, and the
// stream's thread runs the op on them. Aliases own nothing: no CUDA storage is held, and freeing one frees no
// memory.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ALIAS_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ALIAS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "integration/simcuda/torch/geometry.h"

namespace simcuda::ops {

// Whether an op may grow a storage that it writes. Growing moves it to host memory, which only a run that is
// waited for can carry back, so anywhere else an attempt to grow is an error.
enum class Growth : uint8_t { kForbidden, kAllowed };

// Whether aliases stand for the device's bytes, or have zeros of their own in host memory: then an op can run
// without touching the device.
enum class Bytes : uint8_t { kShared, kZeros };

// The aliases of one call, and the list of addresses that its launch must name.
class AliasSet {
 public:
  explicit AliasSet(Growth growth, Bytes bytes = Bytes::kShared) : growth_(growth), bytes_(bytes) {}

  // Returns a CPU tensor over the bytes of the CUDA tensor `tensor`: same sizes, strides, offset, dtype, conj
  // and neg bits.
  at::Tensor Alias(const at::Tensor& tensor);

  // Returns one storage per distinct device storage, in the order of first use.
  const std::vector<c10::Storage>& host_storages() const { return host_; }
  // Returns the device storages of the same places; valid only while the caller's arguments live.
  const std::vector<c10::StorageImpl*>& device_storages() const { return device_; }
  // Returns the base addresses of all storages, and data pointers that differ from them.
  const std::vector<uint64_t>& addresses() const { return addresses_; }

  // Returns the CUDA tensors in the order of their use; valid as long as the caller's arguments.
  const std::vector<const c10::TensorImpl*>& tensors() const { return tensors_; }

  // Adds the address of a result's storage.
  void AddAddress(uint64_t address);

  // Moves the parts out; the set is empty afterwards.
  std::vector<c10::Storage> TakeHostStorages() { return std::move(host_); }

 private:
  size_t PlaceOf(const c10::Storage& storage);

  Growth growth_;
  Bytes bytes_;
  std::vector<c10::StorageImpl*> device_;
  std::vector<c10::Storage> host_;
  std::vector<uint64_t> addresses_;
  std::vector<const c10::TensorImpl*> tensors_;
};

// Returns a CPU storage over memory that somebody else owns. `growth`: as in AliasSet.
c10::Storage BorrowedStorage(void* data, size_t bytes, Growth growth);

// Returns a tensor on `device` with `geometry`, in `storage`.
at::Tensor MakeTensor(const TensorGeometry& geometry, c10::Storage storage, c10::DispatchKey key);

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_ALIAS_H_
