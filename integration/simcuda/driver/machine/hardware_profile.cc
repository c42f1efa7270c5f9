#include "integration/simcuda/driver/machine/hardware_profile.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace simcuda {

const char* const kCallNames[kCallCount] = {
    "cuMemAddressReserve", "cuMemAddressFree",  "cuMemCreate",         "cuMemRelease",   "cuMemMap",
    "cuMemUnmap",          "cuMemSetAccess",    "cuMemAlloc",          "cuMemFree",      "cuMemHostAlloc",
    "cuMemFreeHost",       "cuMemHostRegister", "cuMemHostUnregister", "cuLaunchKernel", "cuGraphLaunch",
    "cuMemcpyAsync",       "cuMemsetAsync",     "cuEventRecord",       "cuEventQuery",   "cuStreamWaitEvent",
    "cuModuleLoadData"};

namespace {

using Json = nlohmann::json;

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMicrosecond = 1000;

// Reads a file and remembers the first thing that is wrong with it.
class Reader {
 public:
  Reader(End end, double scale) : end_(end), scale_(scale) {}

  bool Read(const Json& file, HardwareProfile* profile);
  const std::string& error() const { return error_; }

 private:
  void Fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  bool Knows(const Json& object, const std::string& where, std::initializer_list<const char*> keys);
  // The value of a figure, or its chosen end.
  double Figure(const Json& figure, const std::string& where);
  // The figure at object[key]; 0 if it is absent.
  double Optional(const Json& object, const char* key, const std::string& where);
  double Rate(const Json& object, const char* key, const std::string& where);
  void ReadCalls(const Json& calls, HardwareProfile* profile);
  void ReadDirection(const Json& direction, const std::string& where, DirectionCost* cost);
  void ReadKernels(const Json& kernels, HardwareProfile* profile);

  const End end_;
  const double scale_;
  std::string error_;
};

bool Reader::Knows(const Json& object, const std::string& where, std::initializer_list<const char*> keys) {
  if (!object.is_object()) {
    Fail(where + " is no object");
    return false;
  }
  for (const auto& [key, value] : object.items()) {
    bool known = false;
    for (const char* name : keys) known = known || key == name;
    if (!known) Fail(where + " has \"" + key + "\", which is not known");
  }
  return true;
}

double Reader::Figure(const Json& figure, const std::string& where) {
  if (!Knows(figure, where, {"value", "low", "high", "source", "assumed"})) return 0;
  const bool ends = figure.contains("low") && figure.contains("high");
  const bool assumed = figure.contains("assumed");
  if (assumed == figure.contains("source")) {
    Fail(where + " takes a source, or what it is assumed from");
  } else if (figure.contains("value") == ends || (assumed && !ends)) {
    Fail(where + " takes a value with a source, or low and high");
  }
  const Json* const chosen = !ends ? &figure["value"] : &figure[end_ == End::kLow ? "low" : "high"];
  if (!error_.empty()) return 0;
  if (!chosen->is_number() || chosen->get<double>() < 0) {
    Fail(where + " is no number of 0 or more");
    return 0;
  }
  if (ends && figure["low"] > figure["high"]) Fail(where + ": low is more than high");
  return chosen->get<double>();
}

double Reader::Optional(const Json& object, const char* key, const std::string& where) {
  return object.contains(key) ? Figure(object[key], where + "." + key) : 0;
}

// Bytes per stretched nanosecond.
double Reader::Rate(const Json& object, const char* key, const std::string& where) {
  if (!object.contains(key)) {
    Fail(where + " lacks " + key);
    return 1;
  }
  const double gb_per_s = Figure(object[key], where + "." + key);
  if (gb_per_s <= 0) Fail(where + "." + key + " must be more than 0");
  return gb_per_s / scale_;
}

void Reader::ReadCalls(const Json& calls, HardwareProfile* profile) {
  if (!calls.is_object()) return Fail("calls is no object");
  for (const auto& [name, value] : calls.items()) {
    int at = 0;
    while (at < kCallCount && name != kCallNames[at]) ++at;
    if (at == kCallCount) return Fail("calls has \"" + name + "\", which is not known");
  }
  for (int i = 0; i < kCallCount; ++i) {
    const std::string where = std::string("calls.") + kCallNames[i];
    if (!calls.contains(kCallNames[i])) return Fail(where + " is missing");
    const Json& call = calls[kCallNames[i]];
    if (!Knows(call, where, {"holds", "call_us", "handle_us", "gib_us", "empty_gib_us"})) return;
    const std::string held = call.value("holds", Json()).is_string() ? call["holds"].get<std::string>() : "";
    CallCost& cost = profile->calls[i];
    if (held == "memory") {
      cost.held = Held::kMemory;
    } else if (held == "context") {
      cost.held = Held::kContext;
    } else if (held == "everything" && static_cast<Call>(i) == Call::kModuleLoad) {
      cost.held = Held::kEverything;
    } else if (held != "nothing") {
      return Fail(where + ".holds takes memory, context or nothing; a load of code everything as well");
    }
    cost.call_ns = Optional(call, "call_us", where) * kMicrosecond * scale_;
    cost.handle_ns = Optional(call, "handle_us", where) * kMicrosecond * scale_;
    cost.byte_ns = Optional(call, "gib_us", where) * kMicrosecond * scale_ / kGiB;
    cost.empty_byte_ns = Optional(call, "empty_gib_us", where) * kMicrosecond * scale_ / kGiB;
    if (call.contains("empty_gib_us") && static_cast<Call>(i) != Call::kHostRegister)
      return Fail(where + " makes no pages: empty_gib_us is a registration's");
  }
}

void Reader::ReadDirection(const Json& direction, const std::string& where, DirectionCost* cost) {
  if (!Knows(direction, where, {"setup_us", "alone_gb_per_s", "both_gb_per_s"})) return;
  cost->setup_ns = Optional(direction, "setup_us", where) * kMicrosecond * scale_;
  cost->alone_bytes_per_ns = Rate(direction, "alone_gb_per_s", where);
  cost->both_bytes_per_ns = Rate(direction, "both_gb_per_s", where);
  if (cost->both_bytes_per_ns > cost->alone_bytes_per_ns) Fail(where + " is faster with both directions");
}

void Reader::ReadKernels(const Json& kernels, HardwareProfile* profile) {
  if (!Knows(kernels, "kernels", {"least_us", "reach_gb_per_s", "table"})) return;
  profile->kernel_ns = Optional(kernels, "least_us", "kernels") * kMicrosecond * scale_;
  if (kernels.contains("reach_gb_per_s"))
    profile->reach_bytes_per_ns = Rate(kernels, "reach_gb_per_s", "kernels");
  if (!kernels.contains("table")) return;
  if (!kernels["table"].is_array()) return Fail("kernels.table is no list");
  for (const Json& row : kernels["table"]) {
    const std::string where = "kernels.table[" + std::to_string(profile->kernels.size()) + "]";
    if (!Knows(row, where, {"part_of_name", "us"})) return;
    if (!row.contains("part_of_name") || !row["part_of_name"].is_string() || !row.contains("us"))
      return Fail(where + " takes part_of_name and us");
    profile->kernels.push_back(
        {row["part_of_name"].get<std::string>(), Figure(row["us"], where + ".us") * kMicrosecond * scale_});
  }
}

bool Reader::Read(const Json& file, HardwareProfile* profile) {
  if (!Knows(file, "the file", {"name", "machine", "notes", "calls", "copies", "kernels", "measured"}))
    return false;
  profile->scale = scale_;
  if (file.contains("name") && file["name"].is_string()) {
    profile->name = file["name"].get<std::string>();
  } else {
    Fail("name is missing");
  }
  ReadCalls(file.value("calls", Json()), profile);
  const Json copies = file.value("copies", Json());
  if (Knows(copies, "copies", {"in", "out", "pageable_gb_per_s", "device_gb_per_s"})) {
    ReadDirection(copies.value("in", Json()), "copies.in", &profile->directions[0]);
    ReadDirection(copies.value("out", Json()), "copies.out", &profile->directions[1]);
    profile->pageable_bytes_per_ns = Rate(copies, "pageable_gb_per_s", "copies");
    profile->device_bytes_per_ns = Rate(copies, "device_gb_per_s", "copies");
  }
  ReadKernels(file.value("kernels", Json::object()), profile);
  return error_.empty();
}

}  // namespace

double HardwareProfile::NsOf(Call call, uint64_t handles, uint64_t bytes, uint64_t empty_bytes) const {
  const CallCost& cost = calls[static_cast<int>(call)];
  return cost.call_ns + cost.handle_ns * static_cast<double>(handles) +
         cost.byte_ns * static_cast<double>(bytes) + cost.empty_byte_ns * static_cast<double>(empty_bytes);
}

double HardwareProfile::KernelNs(const std::string& kernel) const {
  for (const KernelTime& row : kernels) {
    if (kernel.find(row.part) != std::string::npos) return row.ns;
  }
  return kernel_ns;
}

bool LoadProfile(const std::string& file, End end, double scale, HardwareProfile* profile,
                 std::string* error) {
  std::ifstream stream(file);
  if (!stream) {
    *error = "it cannot be read";
    return false;
  }
  const Json parsed = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    *error = "it is no JSON";
    return false;
  }
  Reader reader(end, scale);
  if (reader.Read(parsed, profile)) return true;
  *error = reader.error();
  return false;
}

}  // namespace simcuda
