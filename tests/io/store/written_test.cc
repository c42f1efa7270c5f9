// Written means written: what the store has reported as written is on the disk, whatever the way it took
// there. What is reported about the way is true. Each kind of file system is mounted where that is permitted.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "io/engine/aligned_buffer.h"
#include "io/engine/page_cache.h"
#include "io/engine/thread_engine.h"
#include "io/store/spill_file.h"
#include "io/store/spill_store.h"
#include "tests/fakes/faulty_engine.h"
#include "tests/fakes/wait_until.h"
#include "tests/io/disk_fixture.h"

namespace spillway::io {
namespace {

// What memory pressure does at any time.
void DropCaches() {
  sync();
  const int file = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  EXPECT_EQ(write(file, "1", 1), 1);
  close(file);
}

// Writes slots, several at a time, and reads them back.
class Spilled {
 public:
  Spilled(SpillStore* store, std::vector<SlotId> slots) : store_(store), slots_(std::move(slots)) {
    for (size_t i = 0; i < slots_.size(); ++i) FillPattern(At(i), kSlotBytes, i);
    for (size_t first = 0; first < slots_.size(); first += kAtOnce) {
      Waiter waiter;
      const size_t end = std::min(slots_.size(), first + kAtOnce);
      for (size_t i = first; i < end; ++i) store_->Write(slots_[i], At(i), kSlotBytes, waiter.Expect());
      for (const absl::Status& status : waiter.WaitAll()) {
        good_.push_back(status.ok());
        if (!status.ok()) last_error_ = std::string(status.message());
      }
    }
  }

  size_t refused() const { return static_cast<size_t>(std::count(good_.begin(), good_.end(), false)); }
  const std::string& last_error() const { return last_error_; }

  // Every write that was reported good comes back.
  void CheckAll() {
    AlignedBuffer back(kSlotBytes);
    size_t lost = 0, wrong = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (!good_[i]) continue;
      if (!ReadSync(store_, slots_[i], back.data(), kSlotBytes).ok()) {
        ++lost;
      } else if (std::memcmp(back.data(), At(i), kSlotBytes) != 0) {
        ++wrong;
      }
    }
    EXPECT_EQ(lost, 0u) << "of " << slots_.size();
    EXPECT_EQ(wrong, 0u) << "of " << slots_.size();
  }

 private:
  static constexpr size_t kAtOnce = 8;
  char* At(size_t i) { return data_.data() + i * kSlotBytes; }

  SpillStore* const store_;
  const std::vector<SlotId> slots_;
  AlignedBuffer data_{slots_.size() * kSlotBytes};
  std::vector<bool> good_;
  std::string last_error_;
};

class WrittenTest : public DiskTest {
 protected:
  // On a disk that promises more than what it lies on can hold.
  void CheckFullBacking(ChecksumMode checksum, bool direct) {
    SpillStoreOptions options = DiskOptions(path());
    options.checksum = checksum;
    options.growth_bytes = 256 * kMiB;
    if (!direct) RefuseDirect(&options);
    testing::internal::CaptureStderr();
    const auto store = MakeStore(options);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(store->stats().directories[0].direct, direct);
    EXPECT_EQ(said.find("no direct transfers here: ") != std::string::npos, !direct) << said;
    const bool overridden = !direct && checksum == ChecksumMode::kOff;
    const char* const line = "checksums stay on although SPILLWAY_CHECKSUM is off: ";
    EXPECT_EQ(said.find(line) != std::string::npos, overridden) << said;
    Spilled spilled(store.get(), Reserve(store.get(), 90));
    EXPECT_GT(spilled.refused(), 0u);
    EXPECT_LT(spilled.refused(), 60u) << spilled.last_error();
    DropCaches();
    spilled.CheckAll();
  }
};

const LoopDisk kOverPromised = {.mebibytes = 400, .backing_mebibytes = 160};

TEST_F(WrittenTest, AFullBackingStoreRefusesBufferedWritesAndLosesNothing) {
  MOUNT_OR_SKIP(kOverPromised);
  CheckFullBacking(ChecksumMode::kOn, /*direct=*/false);
}

TEST_F(WrittenTest, NorDoesItGiveWrongBytesWhereChecksumsAreOff) {
  MOUNT_OR_SKIP(kOverPromised);
  CheckFullBacking(ChecksumMode::kOff, /*direct=*/false);
}

TEST_F(WrittenTest, DirectWritesAreRefusedThereAsWell) {
  MOUNT_OR_SKIP(kOverPromised);
  CheckFullBacking(ChecksumMode::kOff, /*direct=*/true);
}

uint64_t BytesReadFromDisks() {
  rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<uint64_t>(usage.ru_inblock) * 512 : 0;
}

// A second look at bytes that were wrong must be one at the disk, whoever has brought them into the cache.
TEST(WrittenThroughTest, ReadsGoPastTheCache) {
  constexpr uint32_t kBytes = 512u << 10;
  TestDirectory directory;
  const auto file = SpillFile::Create(directory.path(), FileSystemCheck::kNormal, DirectIo::kNever,
                                      FileNaming::kUnnamedIfPossible);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto engine = *MakeThreadEngine({(*file)->fd()}, {.page_cache = PageCache::kWrittenThrough});
  AlignedBuffer data(kBytes);
  const auto transfer = [&](IoOp op) {
    const IoRequest request{.op = op, .length = kBytes, .buffer = data.data(), .tag = 1};
    engine->Submit({&request, 1});
    IoResult result;
    EXPECT_EQ(engine->Poll({&result, 1}, std::chrono::seconds(60)), 1u);
    EXPECT_EQ(result.result, static_cast<int32_t>(kBytes));
  };
  FillPattern(data.data(), kBytes, 1);
  transfer(IoOp::kWrite);
  EXPECT_EQ(CachedPages((*file)->fd(), kBytes), 0u);
  ASSERT_EQ(pread((*file)->fd(), data.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_GT(CachedPages((*file)->fd(), kBytes), 0u);
  const uint64_t before = BytesReadFromDisks();
  transfer(IoOp::kRead);
  EXPECT_GE(BytesReadFromDisks(), before + kBytes);
  EXPECT_EQ(CachedPages((*file)->fd(), kBytes), 0u);
}

// Descriptors of this process that lead to files in `directory`, unlinked ones too.
int OpenFilesIn(const std::string& directory) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    files += std::filesystem::read_symlink(entry.path(), error).string().starts_with(directory + "/") ? 1 : 0;
  }
  return files;
}

// It would keep the space of a file that is gone. The threads that flush have opened the file for themselves.
TEST(WrittenAfterForkTest, AChildKeepsNoDescriptor) {
  TestDirectory directory;
  SpillStoreOptions options = SmallOptions(directory.path());
  options.shutdown_timeout = tests::kPatience;
  RefuseDirect(&options);
  auto store = MakeStore(options);
  EXPECT_GT(OpenFilesIn(directory.path()), 1);
  const pid_t child = fork();
  if (child == 0) {
    store->AbandonAfterFork();
    _exit(OpenFilesIn(directory.path()));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  store.reset();
  EXPECT_EQ(OpenFilesIn(directory.path()), 0);
}

// ---- Kinds of file systems: what is reported is true, and nothing is lost, up to the last slot that they give.

struct KindCase {
  std::string name;
  LoopDisk disk;
  bool direct = true;
  std::string prepare{};  // commands of the shell; $DISK is where the disk is mounted
  std::string folder{};   // below it, where the slots go
};

class FileSystemKinds : public WrittenTest, public ::testing::WithParamInterface<KindCase> {
 protected:
  // Mounts the disk, and what the case mounts upon it.
  void MountCase() {
    UnmountCase();
    Mount(GetParam().disk);
    if (IsSkipped() || GetParam().prepare.empty()) return;
    const std::string& prepare = GetParam().prepare;
    if (!LoopMount::Runs("DISK=" + path() + "; " + prepare))
      GTEST_SKIP() << "not permitted here, or not installed: " << prepare;
  }
  void UnmountCase() const {
    if (mount_ != nullptr && !GetParam().folder.empty()) LoopMount::Unmount(Folder());
  }
  void TearDown() override { UnmountCase(); }
  std::string Folder() const { return path() + GetParam().folder; }
};

std::vector<SlotId> AllSlots(SpillStore* store, size_t most) {
  std::vector<SlotId> slots;
  while (slots.size() < most) {
    const absl::StatusOr<std::vector<SlotId>> more = store->ReserveSlots(4);
    if (!more.ok()) break;
    slots.insert(slots.end(), more->begin(), more->end());
  }
  return slots;
}

TEST_P(FileSystemKinds, IsReportedAsItIsAndLosesNothing) {
  for (const ChecksumMode checksum : {ChecksumMode::kOn, ChecksumMode::kOff}) {
    MountCase();
    if (IsSkipped()) return;
    SpillStoreOptions options = DiskOptions(Folder());
    options.checksum = checksum;
    options.growth_bytes = 32 * kMiB;
    const auto store = MakeStore(options);
    EXPECT_EQ(store->stats().directories[0].direct, GetParam().direct);
    const std::vector<SlotId> slots = AllSlots(store.get(), 56);
    EXPECT_GE(slots.size(), 20u);
    Spilled spilled(store.get(), slots);
    EXPECT_LE(spilled.refused(), slots.size() / 4) << spilled.last_error();
    DropCaches();
    spilled.CheckAll();
  }
}

const KindCase kKinds[] = {
    {.name = "Ext4", .disk = {.mebibytes = 128}},
    {.name = "Ext4WithDataInItsJournal",
     .disk = {.mebibytes = 160, .options = "data=journal"},
     .direct = false},
    {.name = "Xfs", .disk = {.mebibytes = 320, .type = "xfs"}},
    {.name = "Btrfs", .disk = {.mebibytes = 320, .type = "btrfs"}},
    {.name = "BtrfsWithCompression",
     .disk = {.mebibytes = 320, .type = "btrfs", .options = "compress-force=zstd"}},
    {.name = "BtrfsWithAQuotaGroup",
     .disk = {.mebibytes = 320, .type = "btrfs"},
     .prepare = "btrfs quota enable $DISK && btrfs qgroup limit 100M $DISK"},
    {.name = "Overlay",
     .disk = {.mebibytes = 128},
     .prepare = "cd $DISK && mkdir lower upper work merged && "
                "mount -t overlay spillway_test -o lowerdir=lower,upperdir=upper,workdir=work merged",
     .folder = "/merged"},
    {.name = "OverlayOnDataInAJournal",
     .disk = {.mebibytes = 160, .options = "data=journal"},
     .direct = false,
     .prepare = "cd $DISK && mkdir lower upper work merged && "
                "mount -t overlay spillway_test -o lowerdir=lower,upperdir=upper,workdir=work merged",
     .folder = "/merged"},
    {.name = "Bindfs",
     .disk = {.mebibytes = 128},
     .direct = false,
     .prepare = "cd $DISK && mkdir from to && bindfs from to",
     .folder = "/to"},
};

INSTANTIATE_TEST_SUITE_P(Written, FileSystemKinds, ::testing::ValuesIn(kKinds),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace spillway::io
