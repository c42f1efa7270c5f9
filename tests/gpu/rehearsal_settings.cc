// For rehearse.py, loaded into every process there: gives the stand-in driver its settings, which a session on a GPU does
// not pass on. The file has a line NAME=VALUE for each; what the environment has already stays.

#include <cstdio>
#include <cstdlib>
#include <cstring>

__attribute__((constructor)) static void SetUp() {
  std::FILE* const file = std::fopen("/etc/simcuda.settings", "re");
  if (file == nullptr) return;
  char line[512];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    char* const value = std::strchr(line, '=');
    if (value == nullptr) continue;
    *value = '\0';
    setenv(line, value + 1, 0);
  }
  std::fclose(file);
}
