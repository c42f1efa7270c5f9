// What a wrong word of the command line may be meant for: a subcommand or an option of nearly that name. main.cc asks
// after a parse that has failed. One thread; nothing fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::integration {

// How many characters must be added, left out, replaced, or exchanged with their neighbour to make one of the
// other (optimal string alignment).
size_t EditDistance(std::string_view one, std::string_view other);

// The first of `words` that is nearest to `word`, with one change to every three characters at most; else
// empty.
std::string NearestWord(std::string_view word, const std::vector<std::string>& words);

// After a parse that has failed: the subcommand or option that a word of it may be meant for, of the subcommand
// that was named; empty where there is none.
std::string MeantWord(const CLI::App& app);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_
