// A system that has no thread left (a control group's limit, RLIMIT_NPROC): the store is refused, or goes on
// with the threads that it has. It does not end the job.

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>

#include "io/engine/aligned_buffer.h"
#include "tests/io/store_helpers.h"

namespace spillway::io {
namespace {

constexpr int kNotPermitted = 77;

// No thread can be started from here on.
bool RefuseThreads() {
  const auto at = [](size_t offset) { return static_cast<__u32>(offset); };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at(offsetof(seccomp_data, nr))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clone3, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int CreateWithoutThreads(const std::string& path) {
  if (!RefuseThreads()) return kNotPermitted;
  return absl::IsResourceExhausted(SpillStore::Create(SmallOptions(path)).status()) ? 0 : 1;
}

int SpillWithoutFurtherThreads(const std::string& path) {
  auto store = MakeStore(SmallOptions(path));
  const SlotId slot = Reserve(store.get(), 1)[0];
  AlignedBuffer data(kSlotBytes);
  AlignedBuffer back(kSlotBytes);
  FillPattern(data.data(), kSlotBytes, 1);
  if (!RefuseThreads()) return kNotPermitted;
  if (!WriteSync(store.get(), slot, data.data(), kSlotBytes).ok()) return 1;
  if (!ReadSync(store.get(), slot, back.data(), kSlotBytes).ok()) return 2;
  return std::memcmp(data.data(), back.data(), kSlotBytes) == 0 ? 0 : 3;
}

// The status of a process of its own that calls `body`.
int InAChild(int (*body)(const std::string&)) {
  TestDirectory directory;
  const pid_t child = fork();
  if (child == 0) _exit(body(directory.path()));
  int status = 0;
  return waitpid(child, &status, 0) == child ? status : -1;
}

void ExpectGood(int status) {
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "seccomp is not permitted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ThreadShortageTest, AStoreThatGetsNoThreadIsRefused) { ExpectGood(InAChild(CreateWithoutThreads)); }

TEST(ThreadShortageTest, AStoreNeedsNoFurtherThreadOnceItIsThere) {
  ExpectGood(InAChild(SpillWithoutFurtherThreads));
}

}  // namespace
}  // namespace spillway::io
