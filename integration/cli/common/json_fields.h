// JsonFields: typed reading of a JSON object from an unknown writer. Every wrong field is an error that names
// its place and what is accepted; an absent one is none. The first error is kept, so that a reader goes on to
// its end and checks once. For report_data. Pure.

#ifndef SPILLWAY_INTEGRATION_CLI_COMMON_JSON_FIELDS_H_
#define SPILLWAY_INTEGRATION_CLI_COMMON_JSON_FIELDS_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace spillway::integration {

class JsonFields {
 public:
  // `status` keeps the first error of this object and of all that are made from it; both outlive it.
  JsonFields(const nlohmann::json& object, std::string path, absl::Status* status);

  bool Has(const char* name) const;
  // Numbers are finite and at least 0.
  std::optional<double> Number(const char* name) const;
  std::optional<bool> Bool(const char* name) const;
  std::string Text(const char* name) const;  // empty if it is absent
  std::vector<std::string> Texts(const char* name) const;
  std::vector<double> Numbers(const char* name) const;
  // Returns whole numbers below `count`, or none for -1.
  std::vector<std::optional<size_t>> Indexes(const char* name, size_t count) const;
  std::optional<JsonFields> Object(const char* name) const;
  std::vector<JsonFields> Objects(const char* name) const;
  // Return the members of an object with any names: each with its object, or with its number.
  std::vector<std::pair<std::string, JsonFields>> Members() const;
  std::vector<std::pair<std::string, double>> NumberMembers() const;

  // Fails unless all of the columns called `names` that are there have as many rows as the first.
  void CheckEqualRows(std::initializer_list<const char*> names) const;
  void Fail(const std::string& place, absl::string_view what, absl::string_view accepted) const;
  std::string Path(absl::string_view name) const;

 private:
  const nlohmann::json* Find(const char* name) const;

  const nlohmann::json* object_;
  std::string path_;
  absl::Status* status_;
};

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_COMMON_JSON_FIELDS_H_
