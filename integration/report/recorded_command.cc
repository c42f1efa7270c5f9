#include "integration/report/recorded_command.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace spillway::integration {
namespace {

constexpr size_t kMaxArguments = 64;
constexpr size_t kLongestArgument = 256;
constexpr char kMask[] = "***";
constexpr std::string_view kSecrets[] = {"key",    "apikey",     "token",      "apitoken",
                                         "secret", "secrets",    "passwd",     "password",
                                         "pwd",    "passphrase", "credential", "credentials"};

// Returns the last word of "--api-key", "API_KEY" or "apiKey", in small letters.
std::string LastWord(std::string_view name) {
  std::string word;
  for (size_t i = name.size(); i-- > 0;) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isalnum(c) == 0) {
      if (word.empty()) continue;
      break;
    }
    word.insert(word.begin(), static_cast<char>(std::tolower(c)));
    const bool begins =
        std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1])) != 0;
    if (begins) break;
  }
  return word;
}

}  // namespace

bool NamesASecret(std::string_view name) {
  return std::find(std::begin(kSecrets), std::end(kSecrets), LastWord(name)) != std::end(kSecrets);
}

std::vector<std::string> RecordedCommand(std::vector<std::string> arguments) {
  bool value_of_secret = false;
  for (std::string& argument : arguments) {
    const bool is_option = argument.starts_with('-');
    if (value_of_secret && !is_option) argument = kMask;
    const size_t equals = argument.find('=');
    const std::string_view name = std::string_view(argument).substr(0, equals);
    const bool secret = NamesASecret(name);
    if (secret && equals != std::string::npos) argument.replace(equals + 1, std::string::npos, kMask);
    value_of_secret = secret && is_option && equals == std::string::npos;
  }
  if (arguments.size() > kMaxArguments) arguments.resize(kMaxArguments);
  for (std::string& argument : arguments) {
    if (argument.size() > kLongestArgument) argument.resize(kLongestArgument);
  }
  return arguments;
}

}  // namespace spillway::integration
