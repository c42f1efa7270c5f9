#include "integration/simcuda/driver/core/fail_points.h"

#include <array>
#include <sstream>
#include <vector>

namespace simcuda {
namespace {

// A function's rule, and its calls since the rules were set.
struct Rule {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> failures{0};
  std::atomic<int64_t> nth{0};  // 0: it does not fail
  std::atomic<bool> from_then_on{false};
  std::atomic<int> code{CUDA_ERROR_UNKNOWN};
};
std::array<Rule, static_cast<size_t>(DriverCall::kCount)> g_rules;

constexpr const char* kFunctionNames[] = {
#define DRIVER_FUNCTION(symbol, name, version, form) #symbol,
#include "allocator/driver/driver_functions.def"
#undef DRIVER_FUNCTION
};

// -1: no such function.
int CallOf(const std::string& symbol) {
  for (int i = 0; i < static_cast<int>(DriverCall::kCount); ++i) {
    if (symbol == kFunctionNames[i]) return i;
  }
  return -1;
}

struct ParsedRule {
  int call = -1;
  int64_t nth = 0;
  bool from_then_on = false;
  int code = CUDA_ERROR_UNKNOWN;
};

// CALL:N[+][:CODE]
bool ParseRule(const std::string& text, ParsedRule* rule) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  rule->call = CallOf(text.substr(0, colon));
  std::istringstream rest(text.substr(colon + 1));
  char mark = 0;
  if (rule->call < 0 || !(rest >> rule->nth) || rule->nth < 1) return false;
  rest >> mark;
  if (mark == '+') {
    rule->from_then_on = true;
    mark = 0;
    rest >> mark;
  }
  if (mark == ':' && (!(rest >> rule->code) || rule->code <= 0)) return false;
  return (mark == 0 || mark == ':') && rest.peek() == std::istringstream::traits_type::eof();
}

}  // namespace

std::atomic<bool> g_any_failure{false};

bool SetFailures(const std::string& text) {
  std::vector<ParsedRule> parsed;
  std::istringstream rules(text);
  std::string one;
  while (std::getline(rules, one, ',')) {
    if (!ParseRule(one, &parsed.emplace_back())) return false;
  }
  for (Rule& rule : g_rules) rule.nth = rule.calls = rule.failures = 0;
  for (const ParsedRule& rule : parsed) {
    Rule& place = g_rules[static_cast<size_t>(rule.call)];
    place.from_then_on = rule.from_then_on;
    place.code = rule.code;
    place.nth = rule.nth;
  }
  g_any_failure.store(!parsed.empty(), std::memory_order_release);  // acquired by FailureOf
  return true;
}

CUresult CountCall(DriverCall call) {
  Rule& rule = g_rules[static_cast<size_t>(call)];
  const int64_t nth = rule.nth.load();
  const int64_t calls = ++rule.calls;
  const bool fails = nth != 0 && (calls == nth || (calls > nth && rule.from_then_on.load()));
  if (fails) ++rule.failures;
  return fails ? static_cast<CUresult>(rule.code.load()) : CUDA_SUCCESS;
}

std::vector<RuleCount> CountRules() {
  std::vector<RuleCount> counts;
  for (size_t i = 0; i < g_rules.size(); ++i) {
    const Rule& rule = g_rules[i];
    if (rule.nth.load() != 0) counts.push_back({kFunctionNames[i], rule.calls.load(), rule.failures.load()});
  }
  return counts;
}

void ForgetCalls() {
  for (Rule& rule : g_rules) rule.calls = rule.failures = 0;
}

}  // namespace simcuda
