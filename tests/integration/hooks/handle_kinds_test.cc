// HandleKinds: which kind each handle of a kernel is, and what it ends with.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/hooks/function_registry.h"
#include "tests/integration/hooks/synthetic_handles.h"

namespace spillway::integration {
namespace {

TEST(HandleKindsTest, AHandleIsOfNoKindUntilItIsGivenOut) {
  HandleKinds kinds;
  EXPECT_EQ(kinds.Find(Handle(1)).kind, HandleKind::kUnknown);
  EXPECT_TRUE(kinds.Record(Handle(1), HandleKind::kKernel, Handle(100)));
  EXPECT_EQ(kinds.Find(Handle(1)).kind, HandleKind::kKernel);
  EXPECT_EQ(kinds.Find(Handle(1)).owner, Handle(100));
  EXPECT_FALSE(kinds.Record(Handle(1), HandleKind::kKernel, Handle(100))) << "that was known";
}

TEST(HandleKindsTest, AnotherKindOrOwnerIsAnotherHandle) {
  HandleKinds kinds;
  kinds.Record(Handle(1), HandleKind::kKernel, Handle(100));
  const uint64_t first = kinds.Find(Handle(1)).number;
  EXPECT_TRUE(kinds.Record(Handle(1), HandleKind::kFunction, Handle(100)));
  const uint64_t second = kinds.Find(Handle(1)).number;
  EXPECT_TRUE(kinds.Record(Handle(1), HandleKind::kFunction, Handle(101)));
  EXPECT_NE(first, second);
  EXPECT_NE(second, kinds.Find(Handle(1)).number);
  EXPECT_TRUE(kinds.Forget(Handle(100)).empty()) << "it has moved to the other owner";
  EXPECT_EQ(kinds.Forget(Handle(101)), std::vector<const void*>{Handle(1)});
  EXPECT_EQ(kinds.Find(Handle(1)).kind, HandleKind::kUnknown);
}

TEST(HandleKindsTest, ForgetsByOwner) {
  HandleKinds kinds;
  kinds.Record(Handle(1), HandleKind::kFunction, Handle(100));
  kinds.Record(Handle(2), HandleKind::kFunction, Handle(101));
  kinds.Record(Handle(3), HandleKind::kKernel, nullptr);
  EXPECT_TRUE(kinds.Forget(nullptr).empty()) << "what has no known owner does not end with nobody";
  EXPECT_EQ(kinds.Forget(Handle(100)), std::vector<const void*>{Handle(1)});
  EXPECT_TRUE(kinds.Forget(Handle(100)).empty());
  EXPECT_EQ(kinds.Find(Handle(2)).kind, HandleKind::kFunction);
  EXPECT_EQ(kinds.Find(Handle(3)).kind, HandleKind::kKernel);
}

TEST(HandleKindsTest, ALibrarysModuleGivesOutWhatIsTheLibrarys) {
  HandleKinds kinds;
  kinds.RecordModuleOf(Handle(101), Handle(100));
  kinds.Record(Handle(1), HandleKind::kFunction, Handle(101));
  EXPECT_EQ(kinds.Find(Handle(1)).owner, Handle(100));
  EXPECT_EQ(kinds.Forget(Handle(100)), std::vector<const void*>{Handle(1)});
  // The module's handle may come back as that of a module of its own.
  kinds.Record(Handle(2), HandleKind::kFunction, Handle(101));
  EXPECT_EQ(kinds.Find(Handle(2)).owner, Handle(101));
}

}  // namespace
}  // namespace spillway::integration
