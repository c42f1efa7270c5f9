#include "integration/cli/common/near_words.h"

#include <algorithm>
#include <array>

namespace spillway::integration {
namespace {

constexpr size_t kCharactersOfAChange = 3;

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(subcommand->get_name());
  return names;
}

}  // namespace

size_t EditDistance(std::string_view one, std::string_view other) {
  // Rows of the table of prefixes: this one, and the two before it.
  std::array<std::vector<size_t>, 3> rows;
  rows.fill(std::vector<size_t>(other.size() + 1));
  for (size_t j = 0; j <= other.size(); ++j) rows[0][j] = j;
  for (size_t i = 1; i <= one.size(); ++i) {
    std::vector<size_t>& row = rows[i % 3];
    const std::vector<size_t>&before = rows[(i + 2) % 3], &before_that = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= other.size(); ++j) {
      const bool same = one[i - 1] == other[j - 1];
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
        row[j] = std::min(row[j], before_that[j - 2] + 1);
    }
  }
  return rows[one.size() % 3][other.size()];
}

std::string NearestWord(std::string_view word, const std::vector<std::string>& words) {
  std::string nearest;
  size_t least = word.size() / kCharactersOfAChange + 1;
  for (const std::string& candidate : words) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string MeantWord(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  const CLI::App& where = named.empty() ? app : *named.front();
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    const bool option = word.starts_with("--");
    if (!option && !named.empty()) continue;  // a value, or a file
    const std::string text = word.substr(0, word.find('='));
    std::string meant = NearestWord(text, option ? OptionsOf(where) : SubcommandsOf(app));
    if (!meant.empty()) return meant;
  }
  return "";
}

}  // namespace spillway::integration
