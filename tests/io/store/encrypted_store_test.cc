// A store that encrypts: what comes back, and what lies on the disk.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/store/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/io/disk_fixture.h"

namespace spillway::io {
namespace {

constexpr char kPlanted[] = "the weights of a model that nobody shall see";
constexpr size_t kEncryptedSlots = 12;

std::shared_ptr<const SlotCipher> Cipher() {
  auto cipher = SlotCipher::Create();
  EXPECT_TRUE(cipher.ok()) << cipher.status();
  return *std::move(cipher);
}

// How often the text is in the file.
size_t Count(const std::string& path, const std::string& text) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  size_t found = 0;
  for (size_t at = 0; (at = bytes.find(text, at)) != std::string::npos; at += text.size()) ++found;
  return found;
}

class EncryptedStoreTest : public DiskTest {
 protected:
  // Writes the text at many places of some slots, a page of another, and reads all of it back.
  void WriteAndRead(SpillStoreOptions options) {
    const std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
    slots_ = Reserve(store.get(), kEncryptedSlots);
    AlignedBuffer plain(kSlotBytes), back(kSlotBytes);
    for (size_t i = 0; i < kEncryptedSlots; ++i) {
      FillPattern(plain.data(), kSlotBytes, i);
      for (size_t at = i; at + sizeof(kPlanted) < kSlotBytes; at += 50'000)
        std::memcpy(plain.data() + at, kPlanted, sizeof(kPlanted));
      const std::vector<char> before(plain.data(), plain.data() + kSlotBytes);
      const uint32_t bytes = i == 0 ? kPageBytes : kSlotBytes;
      ASSERT_TRUE(WriteSync(store.get(), slots_[i], plain.data(), bytes).ok());
      EXPECT_EQ(std::memcmp(plain.data(), before.data(), kSlotBytes), 0) << "the source was changed";
      const absl::Status read = ReadSync(store.get(), slots_[i], back.data(), bytes);
      ASSERT_TRUE(read.ok()) << read;
      EXPECT_EQ(std::memcmp(back.data(), plain.data(), bytes), 0);
    }
    store->Shutdown();
    sync();
  }
  std::vector<SlotId> slots_;
};

TEST_F(EncryptedStoreTest, TheRawDiskShowsNothing) {
  MOUNT_OR_SKIP(96);
  WriteAndRead(DiskOptions(path()));
  EXPECT_GT(Count(mount_->image(), kPlanted), kEncryptedSlots)
      << "without it, the disk shows what was written";
  mount_ = nullptr;
  MOUNT_OR_SKIP(96);
  SpillStoreOptions options = DiskOptions(path());
  options.cipher = Cipher();
  WriteAndRead(std::move(options));
  EXPECT_EQ(Count(mount_->image(), kPlanted), 0u);
}

TEST_F(EncryptedStoreTest, AlsoWithoutChecksumsAndByThreads) {
  const TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.cipher = Cipher();
  options.checksum = ChecksumMode::kOff;
  options.engine = EngineKind::kThreads;
  WriteAndRead(std::move(options));
}

// A changed bit of cipher text would be sixteen changed bytes of a block.
TEST_F(EncryptedStoreTest, AFlippedBitIsFound) {
  const TestDirectory directory;
  SpillStoreOptions options =
      FaultyOptions(directory.path(), Fault{.kind = FaultKind::kBitFlip, .op = IoOp::kRead, .count = 100});
  options.cipher = Cipher();
  const std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  ASSERT_TRUE(WriteSync(store.get(), slot, data.data(), kSlotBytes).ok());
  EXPECT_TRUE(absl::IsDataLoss(ReadSync(store.get(), slot, data.data(), kSlotBytes)));
}

// The same slot again and again, and slots that change hands: each use has its own cipher text and comes
// back.
TEST_F(EncryptedStoreTest, SlotsAreUsedAgain) {
  const TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.cipher = Cipher();
  const std::unique_ptr<SpillStore> store = MakeStore(std::move(options));
  AlignedBuffer plain(kSlotBytes), back(kSlotBytes);
  for (uint64_t round = 0; round < 20; ++round) {
    const SlotId slot = Reserve(store.get(), 1)[0];
    for (uint64_t write = 0; write < 2; ++write) {
      FillPattern(plain.data(), kSlotBytes, 2 * round + write);
      ASSERT_TRUE(WriteSync(store.get(), slot, plain.data(), kSlotBytes).ok());
    }
    ASSERT_TRUE(ReadSync(store.get(), slot, back.data(), kSlotBytes).ok());
    EXPECT_EQ(std::memcmp(back.data(), plain.data(), kSlotBytes), 0);
    store->ReleaseSlot(slot);
  }
}

}  // namespace
}  // namespace spillway::io
