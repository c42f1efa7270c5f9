// Suggestions for a wrong word of the command line: a subcommand or an option with nearly that name. main.cc
// asks after a parse that has failed. One thread; no call fails.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::integration {

// Returns how many characters must be added, left out, replaced, or exchanged with their neighbor to turn one
// word into the other (optimal string alignment).
size_t EditDistance(std::string_view one, std::string_view other);

// Returns the first of `words` that is nearest to `word`, with at most one change to every three characters;
// empty if there is none.
std::string NearestWord(std::string_view word, const std::vector<std::string>& words);

// Returns the subcommand or option that a word of a failed parse may be meant for, within the subcommand that
// was named; empty if there is none.
std::string MeantWord(const CLI::App& app);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_NEAR_WORDS_H_
