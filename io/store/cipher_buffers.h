// CipherBuffers: buffers of a slot each for cipher text, for SpillStore. A buffer belongs to one write. It
// comes back when its last owner releases it, because the kernel may use it for longer than the write takes.
// There are as many buffers as writes were under way at once. Any thread. The process ends when there is no
// memory, as everywhere.

#ifndef SPILLWAY_IO_STORE_CIPHER_BUFFERS_H_
#define SPILLWAY_IO_STORE_CIPHER_BUFFERS_H_

#include <memory>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/os/sync.h"
#include "io/store/spill_store_options.h"

namespace spillway::io {

// Made by make_shared: a buffer that is out keeps this object alive.
class CipherBuffers : public std::enable_shared_from_this<CipherBuffers> {
 public:
  // Returns a buffer that nobody else has, as large as a slot, with undefined contents. Its owner may pass it
  // on, on any thread, also after the store has ended.
  std::shared_ptr<AlignedBuffer> Take() {
    std::unique_ptr<AlignedBuffer> buffer;
    {
      const os::MutexLock lock(&mu_);
      if (!unused_.empty()) {
        buffer = std::move(unused_.back());
        unused_.pop_back();
      }
    }
    if (buffer == nullptr) buffer = std::make_unique<AlignedBuffer>(kSlotBytes);
    // The last owner may be the kernel, in a write that was given up and is answered after the store's end.
    const auto give_back = [list = shared_from_this()](AlignedBuffer* used) {
      std::unique_ptr<AlignedBuffer> owned(used);
      const os::MutexLock lock(&list->mu_);
      list->unused_.push_back(std::move(owned));
    };
    return {buffer.release(), give_back};
  }

 private:
  // Taken with the lock of a queue, where a transfer is dropped.
  os::Mutex mu_{os::LockRank::kBuffers};
  // The list never shrinks: a disk tier that was busy once will be busy again.
  std::vector<std::unique_ptr<AlignedBuffer>> unused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace spillway::io

#endif  // SPILLWAY_IO_STORE_CIPHER_BUFFERS_H_
