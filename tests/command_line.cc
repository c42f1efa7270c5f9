#include "tests/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace spillway {

CommandLine::CommandLine(const std::string& what) : app_(std::make_unique<CLI::App>(what)) {}
CommandLine::~CommandLine() = default;

void CommandLine::Add(const std::string& option, std::string* value, const std::string& help) {
  app_->add_option(option, *value, help);
}

void CommandLine::Add(const std::string& option, uint64_t* value, const std::string& help) {
  app_->add_option(option, *value, help);
}

void CommandLine::Add(const std::string& option, int* value, const std::string& help) {
  app_->add_option(option, *value, help);
}

void CommandLine::Add(const std::string& option, double* value, const std::string& help) {
  app_->add_option(option, *value, help);
}

void CommandLine::Add(const std::string& flag, bool* value, const std::string& help) {
  app_->add_flag(flag, *value, help);
}

void CommandLine::Add(const std::string& option, uint64_t* value, const std::string& help, double least,
                      double most) {
  app_->add_option(option, *value, help)->check(CLI::Range(least, most));
}

void CommandLine::Add(const std::string& option, int* value, const std::string& help, double least,
                      double most) {
  app_->add_option(option, *value, help)->check(CLI::Range(least, most));
}

void CommandLine::Add(const std::string& option, double* value, const std::string& help, double least,
                      double most) {
  app_->add_option(option, *value, help)->check(CLI::Range(least, most));
}

void CommandLine::Add(const std::string& option, std::vector<std::string>* values, const std::string& help) {
  app_->add_option(option, *values, help)->delimiter(',');
}

void CommandLine::Add(const std::string& option, std::vector<uint64_t>* values, const std::string& help) {
  app_->add_option(option, *values, help)->delimiter(',');
}

void CommandLine::Parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app_->exit(error));
  }
}

}  // namespace spillway
