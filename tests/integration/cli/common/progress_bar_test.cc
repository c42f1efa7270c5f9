#include "integration/cli/common/progress_bar.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

namespace spillway::integration {
namespace {

std::string Written(bool terminal, const std::function<void(ProgressBar*)>& use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = ::open_memstream(&text, &size);
  {
    ProgressBar bar(file, terminal);
    use(&bar);
  }
  std::fclose(file);
  std::string written(text, size);
  std::free(text);
  return written;
}

TEST(ProgressBarTest, PlainLinesAreOneAtTheStartAndOneAtTheEnd) {
  EXPECT_EQ(Written(false,
                    [](ProgressBar* bar) {
                      bar->Show("/x: writing", 0.1, "1 MiB");
                      bar->Show("/x: writing", 0.5, "5 MiB");
                      bar->Show("/x: writing", 1, "9 MiB in 1.0 s");
                      bar->Show("/x: reading", 0, "");
                      bar->Show("/x: reading", 1, "");
                    }),
            "spillway: /x: writing ...\nspillway: /x: writing: 9 MiB in 1.0 s\n"
            "spillway: /x: reading ...\nspillway: /x: reading: done\n");
}

TEST(ProgressBarTest, ATerminalsLineIsWrittenOverAndTakenOff) {
  const std::string written = Written(true, [](ProgressBar* bar) {
    bar->Show("copying", 0, "");
    bar->Show("copying", 0.5, "half");
    bar->Show("copying", 7, "all");
  });
  EXPECT_EQ(written.find('\n'), std::string::npos);
  EXPECT_NE(written.find("\r\x1b[K[............] "), 0u);
  EXPECT_NE(written.find("[############............] copying half"), std::string::npos);
  EXPECT_NE(written.find("[########################] copying all"), std::string::npos);
  EXPECT_TRUE(written.ends_with("\r\x1b[K"));
}

TEST(ProgressBarTest, NothingShownIsNothingWritten) {
  EXPECT_EQ(Written(true, [](ProgressBar*) {}), "");
  EXPECT_EQ(Written(false, [](ProgressBar*) {}), "");
}

}  // namespace
}  // namespace spillway::integration
