// The options of a program that measures, or is run by hand on a machine with a GPU. CLI11, which costs more to compile
// than most of these programs, is behind command_line.cc. One thread.

#ifndef SPILLWAY_TESTS_COMMAND_LINE_H_
#define SPILLWAY_TESTS_COMMAND_LINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace spillway {

// A variable has its default and lives until Parse has returned; an option that is not given leaves it as it is.
class CommandLine {
 public:
  explicit CommandLine(const std::string& what);
  ~CommandLine();

  void Add(const std::string& option, std::string* value, const std::string& help);
  void Add(const std::string& option, uint64_t* value, const std::string& help);
  void Add(const std::string& option, int* value, const std::string& help);
  void Add(const std::string& option, double* value, const std::string& help);
  void Add(const std::string& flag, bool* value, const std::string& help);
  // Refused where the value is not from least to most.
  void Add(const std::string& option, uint64_t* value, const std::string& help, double least, double most);
  void Add(const std::string& option, int* value, const std::string& help, double least, double most);
  void Add(const std::string& option, double* value, const std::string& help, double least, double most);
  // With commas between them.
  void Add(const std::string& option, std::vector<std::string>* values, const std::string& help);
  void Add(const std::string& option, std::vector<uint64_t>* values, const std::string& help);

  // Ends the process after --help, and with words and a status of its own after wrong use.
  void Parse(int argc, char** argv);

 private:
  const std::unique_ptr<CLI::App> app_;
};

}  // namespace spillway

#endif  // SPILLWAY_TESTS_COMMAND_LINE_H_
