// profile_liar: makes each fact about writes in a profile say that its accesses read only, with a right
// checksum. The job of tests/jobs/job_profile.py then begins with it.

#include <cstdio>
#include <string>

#include "integration/engine/profile_file.h"

int main(int argc, char** argv) {
  using namespace spillway::integration;  // NOLINT: a program of tests
  if (argc != 2) return std::fprintf(stderr, "profile_liar PROFILE\n"), 2;
  auto facts = ReadProfile(argv[1]);
  if (!facts.ok()) return std::fprintf(stderr, "%s\n", std::string(facts.status().message()).c_str()), 1;
  for (spillway::policy::FormFacts& form : facts->writes) {
    form.reads |= form.writes;
    form.writes = 0;
  }
  const absl::Status written = WriteProfile(argv[1], ProfileText(*facts));
  if (!written.ok()) return std::fprintf(stderr, "%s\n", std::string(written.message()).c_str()), 1;
  return 0;
}
