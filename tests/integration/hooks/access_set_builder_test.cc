#include "integration/hooks/access_set_builder.h"

#include <functional>
#include <thread>

#include "tests/integration/hooks/hook_fixture.h"

namespace spillway::integration {
namespace {

class AccessSetBuilderTest : public LaunchHookTest {};

TEST_F(AccessSetBuilderTest, BeforeThereAreBlocksNothingIsAsked) {
  EXPECT_EQ(Launch(2, Stream(1)), CUDA_SUCCESS);
  EXPECT_TRUE(residency_[0].launches.empty());
}

TEST_F(AccessSetBuilderTest, CallsFromInsideAHookedCallPassThrough) {
  Publish();
  residency_[0].inside_run = [&] {
    if (residency_[0].launches.size() == 1) Launch(5, Stream(2));
  };
  Launch(2, Stream(1));
  EXPECT_EQ(residency_[0].launches.size(), 1u);
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 2u);
  Launch(2, Stream(1));  // and the guard is off again
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(AccessSetBuilderTest, AThreadThatEndsCanStillLaunch) {
  Publish();
  struct AtExit {
    std::function<void()> call;
    ~AtExit() { call(); }
  };
  std::thread([&] {
    // Made before the hooks' own thread-local, so destroyed after it.
    thread_local AtExit at_exit;
    at_exit.call = [&] { Launch(1, Stream(1)); };
    Launch(2, Stream(1));
  }).join();
  EXPECT_EQ(residency_[0].launches.size(), 2u);
}

TEST_F(AccessSetBuilderTest, NamesWhatCallsAccess) {
  Publish();
  HookScope scope;
  AccessSetBuilder* const builder = scope.builder();
  ASSERT_NE(builder, nullptr);
  builder->Address(Address(1) + 64);
  builder->Address(0x1000);
  builder->Range(Address(2), 0);
  builder->Range(0x1000, 64);
  builder->PitchedRange(Address(3), 512, 64, 3);
  EXPECT_EQ(Ids(builder->set().begin(), builder->set().end()), (Ids{Id(1), Id(3)}));
  uint64_t words[2] = {Address(5), 7};
  builder->WritesFromHost(0x1000, words, sizeof(words));
  ASSERT_EQ(builder->found().size(), 1u);
  EXPECT_EQ(builder->found()[0].address, 0x1000u);
  EXPECT_EQ(builder->found()[0].target, Id(5));
  EXPECT_TRUE(builder->rewrites());
  builder->NotUnderstood("a test");
  EXPECT_TRUE(builder->reaches_all);
  EXPECT_EQ(switched_off(), "a test;");
  EXPECT_EQ(HookScope().builder(), nullptr) << "a call from inside a hooked call";
}

}  // namespace
}  // namespace spillway::integration
