// Building CPU aliases of CUDA storages and tensors.
#include "integration/simcuda/torch/alias.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>

namespace simcuda::ops {

c10::Storage BorrowedStorage(void* data, size_t bytes, Growth growth) {
  const bool resizable = growth == Growth::kAllowed;
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes),
      at::DataPtr(data, c10::DeviceType::CPU), resizable ? c10::GetCPUAllocator() : nullptr, resizable);
}

at::Tensor MakeTensor(const TensorGeometry& geometry, c10::Storage storage, c10::DispatchKey key) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), geometry.dtype);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
  if (geometry.conjugate) impl->_set_conj(true);
  if (geometry.negative) impl->_set_neg(true);
  return tensor;
}

namespace {

c10::Storage Zeros(size_t bytes) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(bytes), allocator, /*resizable=*/true);
  if (bytes != 0) std::memset(storage->mutable_data(), 0, bytes);
  return storage;
}

}  // namespace

size_t AliasSet::PlaceOf(const c10::Storage& storage) {
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  auto it = std::find(device_.begin(), device_.end(), impl);
  if (it != device_.end()) return it - device_.begin();
  // mutable_data also gives a lazily cloned storage memory of its own.
  void* data = impl->nbytes() == 0 ? impl->data_ptr().get() : impl->mutable_data();
  device_.push_back(impl);
  host_.push_back(bytes_ == Bytes::kZeros ? Zeros(impl->nbytes())
                                          : BorrowedStorage(data, impl->nbytes(), growth_));
  if (data != nullptr) AddAddress(reinterpret_cast<uint64_t>(data));
  return device_.size() - 1;
}

void AliasSet::AddAddress(uint64_t address) {
  if (std::find(addresses_.begin(), addresses_.end(), address) == addresses_.end())
    addresses_.push_back(address);
}

at::Tensor AliasSet::Alias(const at::Tensor& tensor) {
  const size_t place = PlaceOf(tensor.storage());
  tensors_.push_back(tensor.unsafeGetTensorImpl());
  at::Tensor alias = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(host_[place]), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) impl->_set_conj(true);
  if (tensor.is_neg()) impl->_set_neg(true);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  if (tensor.numel() != 0 && tensor.storage_offset() != 0) {
    const auto base = static_cast<const char*>(host_[place].data());
    AddAddress(reinterpret_cast<uint64_t>(base + tensor.storage_offset() * tensor.itemsize()));
  }
  return alias;
}

}  // namespace simcuda::ops
