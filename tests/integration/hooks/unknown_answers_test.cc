// What the wrappers do where the driver answers a question of theirs with an error that says nothing: no block may
// be missed, whatever the true answer was. Sources of copies are in copy_access_sets_test.cc, tables of writers in
// table_writers_test.cc.

#include "integration/hooks/hook_context.h"
#include "integration/hooks/launch_gate.h"
#include "tests/integration/hooks/escape_fixture.h"

namespace spillway::integration {
namespace {

class UnknownAnswersTest : public LaunchHookTest {
 protected:
  static CUgraphExec Exec() { return reinterpret_cast<CUgraphExec>(0xc000); }
  int PinsOf(uint32_t index) const { return residency_[0].PinsOf(Id(index), PinReason::kGraph); }
  static void Capture() {
    driver().Hooked<Row::cuStreamBeginCapture_v2>()(Stream(1), CU_STREAM_CAPTURE_MODE_GLOBAL);
    driver().capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  static void EndCapture(uintptr_t graph) {
    auto made = reinterpret_cast<CUgraph>(graph);  // the fake leaves it as it is
    driver().Hooked<Row::cuStreamEndCapture>()(Stream(1), &made);
    driver().capture = CU_STREAM_CAPTURE_STATUS_NONE;
  }
  // An executable graph that launches a kernel on blocks 2 and 3.
  void MakeExec() {
    Capture();
    Launch(2, Stream(1));
    EndCapture(0xb000);
    CUgraphExec exec = Exec();
    driver().Hooked<Row::cuGraphInstantiateWithFlags>()(&exec, reinterpret_cast<CUgraph>(0xb000), 0);
    driver().Hooked<Row::cuGraphDestroy>()(reinterpret_cast<CUgraph>(0xb000));
    ASSERT_EQ(PinsOf(2), 0);
  }
};

TEST_F(UnknownAnswersTest, BesideOtherContextsALaunchWithoutAKnownOneIsRefused) {
  Publish();
  context_.several_devices = true;
  driver().results["cuCtxGetCurrent"] = {CUDA_ERROR_UNKNOWN};
  EXPECT_EQ(Launch(2, nullptr), CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(residency_[0].launches.empty());
  EXPECT_EQ(driver().CountOf("cuLaunchKernel"), 0u);
}

// The legacy stream cannot be asked while another captures; its launch is refused by the driver itself.
TEST_F(UnknownAnswersTest, AStreamOfWhichNothingIsKnownCountsAsCaptured) {
  Publish();
  Capture();
  driver().results["cuStreamIsCapturing"] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT};
  driver().results["cuStreamGetCaptureInfo_v3"] = {CUDA_ERROR_UNKNOWN};
  Launch(2, Stream(1));
  ExpectPinned(PinReason::kGraph, {Id(2), Id(3)});
  Launch(4, nullptr);
  EXPECT_EQ(residency_[0].pins.size(), 1u);
}

// The pins of what goes into a capture whose id is not known have no end.
TEST_F(UnknownAnswersTest, AGraphThatIsLaunchedInAnUnknownCaptureKeepsItsBlocks) {
  Publish();
  MakeExec();
  Capture();
  driver().results["cuStreamGetCaptureInfo_v3"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuGraphLaunch>()(Exec(), Stream(1));
  EndCapture(0xb100);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec());
  EXPECT_EQ(PinsOf(2), 1);
}

// It may have been launched in earnest.
TEST_F(UnknownAnswersTest, AGraphThatIsLaunchedOnAnUnknownStreamKeepsItsBlocks) {
  Publish();
  MakeExec();
  GetHookState()->captures.store(1);  // elsewhere
  driver().results["cuStreamIsCapturing"] = {CUDA_ERROR_UNKNOWN};
  driver().Hooked<Row::cuGraphLaunch>()(Exec(), Stream(5));
  GetHookState()->captures.store(0);
  driver().Hooked<Row::cuGraphExecDestroy>()(Exec());
  EXPECT_EQ(PinsOf(2), 1);
}

TEST_F(UnknownAnswersTest, ADeniedKernelOnAnUnknownDeviceReachesAllOfEach) {
  DenyList list;
  ASSERT_TRUE(list.Add("test_kernel\n", "list").ok());
  GetHookState()->functions.SetDenyList(&list);
  Publish();
  driver().param_sizes = {8};
  driver().results["cuCtxGetDevice"] = {CUDA_ERROR_UNKNOWN};
  uint64_t word = 5;
  void* params[] = {&word};
  driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), params, nullptr);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1);
  EXPECT_EQ(residency_[1].launches_reaching_all, 1);
  GetHookState()->functions.SetDenyList(nullptr);
}

// It may be a kernel of the deny list, whichever way its parameters come.
TEST_F(UnknownAnswersTest, AKernelWhoseNameIsNotToldReachesEverything) {
  Publish();
  uint64_t words[1] = {Address(2)};
  size_t size = sizeof(words);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  driver().results["cuFuncGetName"] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN};
  for (int launch = 0; launch < 2; ++launch)
    driver().Hooked<Row::cuLaunchKernel>()(Function(), 1, 1, 1, 1, 1, 1, 0, Stream(1), nullptr, extra);
  EXPECT_EQ(residency_[0].launches_reaching_all, 1) << "the second time it was told";
  EXPECT_EQ(switched_off(), "");
}

}  // namespace
}  // namespace spillway::integration
