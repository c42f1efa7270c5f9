// Variable: a variable of the environment that has a value, or none, as long as this object lives, and
// afterwards what it had before. No other thread may read the environment meanwhile.

#ifndef SPILLWAY_TESTS_FAKES_VARIABLE_H_
#define SPILLWAY_TESTS_FAKES_VARIABLE_H_

#include <cstdlib>
#include <optional>
#include <string>

namespace spillway::tests {

class Variable {
 public:
  // Null: it is not set.
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    Set(value);
  }
  ~Variable() { Set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void Set(const char* value) { value == nullptr ? unsetenv(name_) : setenv(name_, value, 1); }
  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace spillway::tests

#endif  // SPILLWAY_TESTS_FAKES_VARIABLE_H_
