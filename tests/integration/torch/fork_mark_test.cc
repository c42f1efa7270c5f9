#include "integration/torch/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace spillway::integration {
namespace {

// The exit status of a child that runs `body`.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkMarkTest, ChildrenFindItWipedAndTheParentDoesNot) {
  const ForkMark mark;
  EXPECT_FALSE(mark.InChild());
  EXPECT_EQ(InChild([&] { return mark.InChild() ? 0 : 1; }), 0);
  EXPECT_EQ(InChild([&] { return InChild([&] { return mark.InChild() ? 0 : 1; }); }), 0) << "a grandchild";
  EXPECT_FALSE(mark.InChild());
}

TEST(ForkMarkTest, AChildMayMakeItsOwn) {
  const ForkMark parents;
  EXPECT_EQ(InChild([&] {
              const ForkMark own;
              return parents.InChild() && !own.InChild() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace spillway::integration
