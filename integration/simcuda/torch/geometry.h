// Learned geometry: the sizes, strides and storage sharing of an op's results for one signature (op, sizes,
// strides, dtypes, ints, bools of its arguments). It is learned from a run that was waited for, and is a
// promise for all later runs, which can then allocate their results at the launch. Callers' threads and the
// streams' use it. It touches neither CUDA nor the driver.
#ifndef SPILLWAY_INTEGRATION_SIMCUDA_TORCH_GEOMETRY_H_
#define SPILLWAY_INTEGRATION_SIMCUDA_TORCH_GEOMETRY_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace simcuda::ops {

using SignatureKey = std::vector<int64_t>;

// The storage of a result's bytes: one of its own (fresh, by number), that of an argument, or none.
enum class StorageKind : uint8_t { kFresh, kArgument, kUndefined };

struct TensorGeometry {
  at::DimVector sizes;
  at::DimVector strides;
  int64_t offset = 0;  // elements from the storage's begin
  caffe2::TypeMeta dtype;
  StorageKind kind = StorageKind::kUndefined;
  int storage = 0;  // fresh number, or place in the call's list of argument storages
  bool conjugate = false;
  bool negative = false;
};

// One value that the op returns.
struct ReturnShape {
  enum class Kind : uint8_t { kArgument, kTensor, kTensorList, kNothing };
  Kind kind = Kind::kTensor;
  int argument = -1;  // kArgument: which argument is returned again
  size_t count = 0;   // kTensorList: number of tensors
};

// The state of an out= or in-place argument after the op has resized it.
struct ArgumentChange {
  size_t written = 0;  // place in the call's list of written tensors
  at::DimVector sizes;
  at::DimVector strides;
  size_t storage_bytes = 0;
};

struct Geometry {
  std::vector<ReturnShape> returns;
  std::vector<TensorGeometry> tensors;  // of all returns, in order
  std::vector<size_t> fresh_bytes;      // per fresh storage
  std::vector<ArgumentChange> changes;
};

// Describes the returns in `stack` of an op that has run on CPU aliases. `argument_storages` are the aliases'
// storages in the call's order; `returned_argument` as in OpFacts. Fresh storages are appended to `fresh` in
// order.
Geometry DescribeReturns(const c10::Stack& stack, const std::vector<int>& returned_argument,
                         const std::vector<c10::Storage>& argument_storages,
                         std::vector<c10::Storage>* fresh);

// Returns an empty text if the two agree, otherwise a sentence about the difference. Changes of arguments are
// not compared.
std::string Difference(const Geometry& promised, const Geometry& found);

// A map from signature to geometry; thread-safe. Entries live until the cache is cleared at its bound, and
// geometries that Find has returned stay valid.
class GeometryCache {
 public:
  std::shared_ptr<const Geometry> Find(const SignatureKey& key) const;
  void Insert(const SignatureKey& key, std::shared_ptr<const Geometry> geometry);

 private:
  struct Hash {
    size_t operator()(const SignatureKey& key) const;
  };
  // A job whose shapes never repeat must not grow without end.
  static constexpr size_t kMaxEntries = 8192;

  mutable std::shared_mutex mu_;
  std::unordered_map<SignatureKey, std::shared_ptr<const Geometry>, Hash> entries_;  // guarded by mu_
};

}  // namespace simcuda::ops

#endif  // SPILLWAY_INTEGRATION_SIMCUDA_TORCH_GEOMETRY_H_
