#include "integration/cli/common/json_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spillway::integration {
namespace {

constexpr char kNumber[] = "a number of 0 or more";

std::string ShownValue(const nlohmann::json& value) {
  if (value.is_number()) return value.dump();
  return absl::StrCat("of type ", value.type_name());
}

bool IsNumber(const nlohmann::json& value) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= 0;
}

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string path, absl::Status* status)
    : object_(&object), path_(std::move(path)), status_(status) {}

std::string JsonFields::Path(absl::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
}

void JsonFields::Fail(const std::string& place, absl::string_view what, absl::string_view accepted) const {
  if (status_->ok())
    *status_ = absl::InvalidArgumentError(absl::StrCat(place, " is ", what, "; expected: ", accepted));
}

const nlohmann::json* JsonFields::Find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonFields::Has(const char* name) const { return Find(name) != nullptr; }

std::optional<double> JsonFields::Number(const char* name) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (IsNumber(*value)) return value->get<double>();
  Fail(Path(name), ShownValue(*value), kNumber);
  return std::nullopt;
}

std::optional<bool> JsonFields::Bool(const char* name) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Fail(Path(name), ShownValue(*value), "true or false");
  return std::nullopt;
}

std::string JsonFields::Text(const char* name) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return "";
  if (value->is_string()) return value->get<std::string>();
  Fail(Path(name), ShownValue(*value), "a string");
  return "";
}

std::vector<std::string> JsonFields::Texts(const char* name) const {
  std::vector<std::string> texts;
  const nlohmann::json* list = Find(name);
  if (list == nullptr) return texts;
  if (!list->is_array()) {
    Fail(Path(name), ShownValue(*list), "a list of strings");
    return texts;
  }
  for (const nlohmann::json& one : *list) {
    if (one.is_string()) {
      texts.push_back(one.get<std::string>());
    } else {
      Fail(absl::StrCat(Path(name), "[", texts.size(), "]"), ShownValue(one), "a string");
      return texts;
    }
  }
  return texts;
}

std::vector<double> JsonFields::Numbers(const char* name) const {
  std::vector<double> numbers;
  const nlohmann::json* list = Find(name);
  if (list == nullptr) return numbers;
  if (!list->is_array()) {
    Fail(Path(name), ShownValue(*list), "a list of numbers");
    return numbers;
  }
  numbers.reserve(list->size());
  for (const nlohmann::json& one : *list) {
    if (!IsNumber(one)) {
      Fail(absl::StrCat(Path(name), "[", numbers.size(), "]"), ShownValue(one), kNumber);
      return numbers;
    }
    numbers.push_back(one.get<double>());
  }
  return numbers;
}

std::vector<std::optional<size_t>> JsonFields::Indexes(const char* name, size_t count) const {
  std::vector<std::optional<size_t>> indexes;
  const nlohmann::json* list = Find(name);
  if (list == nullptr) return indexes;
  if (!list->is_array()) {
    Fail(Path(name), ShownValue(*list), "a list of whole numbers");
    return indexes;
  }
  for (const nlohmann::json& one : *list) {
    const bool whole = one.is_number_integer() && one.get<int64_t>() >= -1 &&
                       one.get<int64_t>() < static_cast<int64_t>(count);
    if (!whole) {
      Fail(absl::StrCat(Path(name), "[", indexes.size(), "]"), ShownValue(one),
           absl::StrFormat("a whole number below %d, the length of its list", count));
      return indexes;
    }
    const auto index = one.get<int64_t>();
    indexes.push_back(index < 0 ? std::nullopt : std::optional<size_t>(static_cast<size_t>(index)));
  }
  return indexes;
}

std::optional<JsonFields> JsonFields::Object(const char* name) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) return JsonFields(*value, Path(name), status_);
  Fail(Path(name), ShownValue(*value), "an object");
  return std::nullopt;
}

std::vector<JsonFields> JsonFields::Objects(const char* name) const {
  std::vector<JsonFields> objects;
  const nlohmann::json* list = Find(name);
  if (list == nullptr) return objects;
  if (!list->is_array()) {
    Fail(Path(name), ShownValue(*list), "a list of objects");
    return objects;
  }
  for (const nlohmann::json& one : *list) {
    const std::string place = absl::StrCat(Path(name), "[", objects.size(), "]");
    if (!one.is_object()) {
      Fail(place, ShownValue(one), "an object");
      return objects;
    }
    objects.emplace_back(one, place, status_);
  }
  return objects;
}

std::vector<std::pair<std::string, JsonFields>> JsonFields::Members() const {
  std::vector<std::pair<std::string, JsonFields>> members;
  for (const auto& [name, value] : object_->items()) {
    if (value.is_object())
      members.emplace_back(name, JsonFields(value, Path(name), status_));
    else
      Fail(Path(name), ShownValue(value), "an object");
  }
  return members;
}

std::vector<std::pair<std::string, double>> JsonFields::NumberMembers() const {
  std::vector<std::pair<std::string, double>> members;
  for (const auto& [name, value] : object_->items()) {
    if (IsNumber(value))
      members.emplace_back(name, value.get<double>());
    else
      Fail(Path(name), ShownValue(value), kNumber);
  }
  return members;
}

void JsonFields::CheckEqualRows(std::initializer_list<const char*> names) const {
  const char* first = nullptr;
  for (const char* name : names) {
    const nlohmann::json* list = Find(name);
    if (list == nullptr) continue;
    if (first == nullptr) first = name;
    const size_t expected = Find(first)->size();
    if (list->size() != expected)
      Fail(Path(name), absl::StrCat("a list of ", list->size()),
           absl::StrCat(expected, ", as of ", Path(first)));
  }
}

}  // namespace spillway::integration
