// Describing, comparing and keeping learned geometries.
#include "integration/simcuda/torch/geometry.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <mutex>

namespace simcuda::ops {
namespace {

int FindStorage(const std::vector<c10::Storage>& storages, const c10::Storage& wanted) {
  for (size_t i = 0; i < storages.size(); ++i) {
    if (storages[i].unsafeGetStorageImpl() == wanted.unsafeGetStorageImpl()) return static_cast<int>(i);
  }
  return -1;
}

TensorGeometry DescribeTensor(const at::Tensor& tensor, const std::vector<c10::Storage>& argument_storages,
                              std::vector<c10::Storage>* fresh) {
  TensorGeometry geometry;
  if (!tensor.defined()) return geometry;
  TORCH_CHECK(tensor.layout() == at::kStrided, "simcuda: a result with layout ", tensor.layout(),
              " cannot become a CUDA tensor");
  geometry.sizes = at::DimVector(tensor.sizes());
  geometry.strides = at::DimVector(tensor.strides());
  geometry.offset = tensor.storage_offset();
  geometry.dtype = tensor.dtype();
  geometry.conjugate = tensor.is_conj();
  geometry.negative = tensor.is_neg();
  geometry.kind = StorageKind::kArgument;
  geometry.storage = FindStorage(argument_storages, tensor.storage());
  if (geometry.storage >= 0) return geometry;
  geometry.kind = StorageKind::kFresh;
  geometry.storage = FindStorage(*fresh, tensor.storage());
  if (geometry.storage < 0) {
    geometry.storage = static_cast<int>(fresh->size());
    fresh->push_back(tensor.storage());
  }
  return geometry;
}

bool Same(const TensorGeometry& a, const TensorGeometry& b) {
  return a.kind == b.kind && a.storage == b.storage && a.offset == b.offset && a.dtype == b.dtype &&
         a.sizes == b.sizes && a.strides == b.strides && a.conjugate == b.conjugate &&
         a.negative == b.negative;
}

std::string Text(const TensorGeometry& g) {
  if (g.kind == StorageKind::kUndefined) return "undefined";
  return c10::str(g.dtype.name(), " sizes ", at::IntArrayRef(g.sizes), " strides ",
                  at::IntArrayRef(g.strides), " offset ", g.offset,
                  g.kind == StorageKind::kFresh ? " in new storage " : " in argument storage ", g.storage);
}

}  // namespace

Geometry DescribeReturns(const c10::Stack& stack, const std::vector<int>& returned_argument,
                         const std::vector<c10::Storage>& argument_storages,
                         std::vector<c10::Storage>* fresh) {
  Geometry geometry;
  for (size_t i = 0; i < returned_argument.size(); ++i) {
    ReturnShape shape;
    const c10::IValue& value = stack[stack.size() - returned_argument.size() + i];
    if (returned_argument[i] >= 0) {
      shape.kind = ReturnShape::Kind::kArgument;
      shape.argument = returned_argument[i];
    } else if (value.isTensor()) {
      geometry.tensors.push_back(DescribeTensor(value.toTensor(), argument_storages, fresh));
    } else if (value.isTensorList()) {
      shape.kind = ReturnShape::Kind::kTensorList;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        geometry.tensors.push_back(DescribeTensor(tensor, argument_storages, fresh));
        ++shape.count;
      }
    } else {
      shape.kind = ReturnShape::Kind::kNothing;
    }
    geometry.returns.push_back(shape);
  }
  for (const c10::Storage& storage : *fresh) geometry.fresh_bytes.push_back(storage.nbytes());
  return geometry;
}

std::string Difference(const Geometry& promised, const Geometry& found) {
  if (promised.tensors.size() != found.tensors.size()) {
    return c10::str(promised.tensors.size(), " result tensors were promised, ", found.tensors.size(),
                    " came");
  }
  for (size_t i = 0; i < promised.tensors.size(); ++i) {
    if (Same(promised.tensors[i], found.tensors[i])) continue;
    return c10::str("result ", i, " was promised as ", Text(promised.tensors[i]), " and came as ",
                    Text(found.tensors[i]));
  }
  if (promised.fresh_bytes != found.fresh_bytes) return "the sizes of the results' storages differ";
  return "";
}

size_t GeometryCache::Hash::operator()(const SignatureKey& key) const {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

std::shared_ptr<const Geometry> GeometryCache::Find(const SignatureKey& key) const {
  std::shared_lock lock(mu_);
  auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : it->second;
}

void GeometryCache::Insert(const SignatureKey& key, std::shared_ptr<const Geometry> geometry) {
  std::unique_lock lock(mu_);
  if (entries_.size() >= kMaxEntries) entries_.clear();
  entries_[key] = std::move(geometry);
}

}  // namespace simcuda::ops
