#include "tests/simulation/mutants.h"

#include "allocator/memory/test_points.h"

namespace spillway::simulation {
namespace {

using allocator::Mutant;

struct Row {
  const char* name;
  Mutant mutant;
};

#define ROW(name) \
  { #name, Mutant::name }
constexpr Row kRows[] = {
    ROW(kSkipSectionWait),     ROW(kPublishBeforeEvent),  ROW(kReuseDrainingBlock), ROW(kNoHeadroom),
    ROW(kTrustOldCopy),        ROW(kCopyWithoutLock),     ROW(kKeepAnyCopy),        ROW(kKeepOfLastLife),
    ROW(kReuseRecordEarly),    ROW(kPublishWithoutCheck), ROW(kNoBarrier),          ROW(kNoFence),
    ROW(kRecordAfterLeave),    ROW(kPinnedUnrecorded),    ROW(kDecommitGateOpen),   ROW(kManyUsesForgotten),
    ROW(kForgetUsesAtClose),   ROW(kDecommitUsed),        ROW(kSkipUses),           ROW(kCommitBeforeCopy),
    ROW(kCommitWithoutCheck),  ROW(kCancelLate),          ROW(kForgetRecordedUse),  ROW(kStagingNotAwaited),
    ROW(kNoWaitForArrival),    ROW(kFirstArrivalOnly),    ROW(kReadNotAwaited),     ROW(kStagingGivenEarly),
    ROW(kReuseRecorded),       ROW(kRecordedOnce),        ROW(kFreeKeepsCopy),      ROW(kCoverAfterRecord),
    ROW(kReuseWaitedEvent),    ROW(kKeepTicket),          ROW(kNextNotWoken),       ROW(kChunksNotSignalled),
    ROW(kErrorUnseen),         ROW(kReachedStaysHome),    ROW(kReachedGivenAtEnd),  ROW(kReachedIsForgotten),
    ROW(kStandstillUndrained), ROW(kExchangedRunning),    ROW(kCopiedUnhashed),     ROW(kStandstillEndsEarly),
    ROW(kSoftFreedMapped),     ROW(kSoftDemoted),         ROW(kSoftTrusted),        ROW(kArrivalTrusted),
    ROW(kArrivalUnawaited),    ROW(kPausedGateOpen),      ROW(kResumeOpensGate),    ROW(kFreeStaysPaused),
    ROW(kNewBlocksUnpaused),   ROW(kOutsideStays),        ROW(kClaimChecksOnce),    ROW(kPauseForgetsPins),
    ROW(kPauseSkipsSections),  ROW(kPauseUnpromised),     ROW(kDroppedKeepsCopy),   ROW(kSpilledNotDropped),
    ROW(kReturnsPaused),       ROW(kPauseUnheard),        ROW(kResumeUnheard),      ROW(kIdlenessDrops),
    ROW(kLimitUnpromised),
};
#undef ROW

}  // namespace

std::vector<std::string> AllMutants() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

bool IsOfPauses(const std::string& name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.mutant >= Mutant::kPausedGateOpen;
  }
  return false;
}

bool SetMutant(const std::string& name) {
  for (const Row& row : kRows) {
    if (name != row.name) continue;
    allocator::active_mutant.store(row.mutant);
    return true;
  }
  return false;
}

}  // namespace spillway::simulation
