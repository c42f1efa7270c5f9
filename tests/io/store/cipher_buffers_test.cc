#include "io/store/cipher_buffers.h"

#include <gtest/gtest.h>

namespace spillway::io {
namespace {

TEST(CipherBuffersTest, ABufferIsUsedAgainWhenTheLastHasLetGo) {
  auto buffers = std::make_shared<CipherBuffers>();
  std::shared_ptr<AlignedBuffer> first = buffers->Take();
  EXPECT_GE(first->size(), kSlotBytes);
  const AlignedBuffer* const place = first.get();
  std::shared_ptr<void> kernels = first;
  first = nullptr;
  const std::shared_ptr<AlignedBuffer> second = buffers->Take();
  EXPECT_NE(second.get(), place) << "the kernel may still use it";
  kernels = nullptr;
  EXPECT_EQ(buffers->Take().get(), place);
}

TEST(CipherBuffersTest, ABufferMayBeTheLastOfAll) {
  auto buffers = std::make_shared<CipherBuffers>();
  const std::shared_ptr<AlignedBuffer> held = buffers->Take();
  buffers = nullptr;
  held->data()[0] = 1;
}

}  // namespace
}  // namespace spillway::io
