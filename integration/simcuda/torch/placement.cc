// The wrapper around PyTorch's CPU allocator.
#include "integration/simcuda/torch/placement.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

namespace simcuda::ops {
namespace {

thread_local std::vector<ResultBlock>* t_blocks = nullptr;

class PlacingAllocator final : public c10::Allocator {
 public:
  explicit PlacingAllocator(c10::Allocator* base) : base_(base), base_delete_(base->raw_deleter()) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (t_blocks != nullptr && bytes != 0) {
      for (ResultBlock& block : *t_blocks) {
        if (block.taken || block.bytes != bytes) continue;
        block.taken = true;
        return {block.address, block.address, &Delete, c10::DeviceType::CPU};
      }
    }
    void* data = base_->allocate(bytes).release_context();
    return {data, data, &Delete, c10::DeviceType::CPU};
  }

  // One deleter for all pointers: PyTorch compares a pointer's deleter with this one.
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }

  void copy_data(void* dest, const void* src, size_t count) const override {
    base_->copy_data(dest, src, count);
  }

  static void Delete(void* data);

 private:
  c10::Allocator* base_;
  c10::DeleterFnPtr base_delete_;
};

PlacingAllocator*& Installed() {
  static PlacingAllocator* allocator = nullptr;  // never destroyed: tensors outlive static destructors
  return allocator;
}

void PlacingAllocator::Delete(void* data) {
  if (t_blocks != nullptr) {
    for (ResultBlock& block : *t_blocks) {
      if (!block.taken || block.address != data) continue;
      block.taken = false;  // a temporary had it: the result may still come
      return;
    }
  }
  Installed()->base_delete_(data);
}

}  // namespace

void InstallPlacingAllocator() {
  c10::Allocator* base = c10::GetCPUAllocator();
  if (Installed() != nullptr || base->raw_deleter() == nullptr) return;
  Installed() = new PlacingAllocator(base);
  c10::SetCPUAllocator(Installed(), 255);
}

PlacementScope::PlacementScope(std::vector<ResultBlock>* blocks) {
  t_blocks = blocks->empty() ? nullptr : blocks;
}
PlacementScope::~PlacementScope() { t_blocks = nullptr; }

}  // namespace simcuda::ops
