// stream_replay: replays a recorded job under the product's tracker, planner and cursor, and prints JSON.
// streams.py runs it; the recording comes on standard input.

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "nlohmann/json.hpp"
#include "policy/model/workload_file.h"
#include "tests/command_line.h"
#include "tests/policy/streams/stream.h"
#include "tests/policy/streams/stream_replay.h"

namespace {

using spillway::policy::ReplayStream;
using spillway::policy::Stream;
using spillway::policy::StreamReplay;
using spillway::policy::StreamReplayOptions;

nlohmann::json Json(const StreamReplay& replay) {
  return {{"ratio", replay.ratio()}, {"departures", replay.departures}, {"stuck", replay.stuck}};
}

}  // namespace

int main(int argc, char** argv) {
  double share = 0.5, link = 0;
  std::string workload;
  spillway::CommandLine line("Replays a recorded job (standard input) in virtual time");
  line.Add("--gpu-share", &share, "the GPU's memory, as a part of the job's peak", 0.01, 1);
  line.Add("--link", &link, "bytes a second in each direction; 0: nothing is replayed", 0, 1e15);
  line.Add("--workload", &workload, "write what is measured as one long iteration to this file");
  line.Parse(argc, argv);
  const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const absl::StatusOr<Stream> stream = spillway::policy::ParseStream(text);
  if (!stream.ok()) {
    std::fprintf(stderr, "stream_replay: no stream: %s\n", std::string(stream.status().message()).c_str());
    return 1;
  }
  StreamReplayOptions options;
  options.machine.gpu_bytes =
      static_cast<spillway::policy::Bytes>(share * static_cast<double>(stream->peak_bytes));
  options.machine.host_bytes = 1'000'000'000'000;
  options.machine.pcie_in = options.machine.pcie_out = link;
  options.machine.ssd_read = options.machine.ssd_write = link;
  if (!workload.empty()) {
    std::ofstream file(workload, std::ios::binary);
    file << spillway::policy::EncodeWorkload(spillway::policy::MeasuredWorkload(*stream, options.launch));
    if (!file.flush()) {
      std::fprintf(stderr, "stream_replay: %s cannot be written\n", workload.c_str());
      return 1;
    }
  }
  nlohmann::json json = {{"peak_bytes", stream->peak_bytes}, {"gpu_bytes", options.machine.gpu_bytes}};
  json["ideal_seconds"] =
      1e-9 * static_cast<double>(options.launch *
                                 static_cast<int64_t>(stream->MeasuredTo() - stream->MeasuredFrom()));
  if (link > 0) {
    json["plan"] = Json(ReplayStream(*stream, options));
    options.plans = false;
    json["lru"] = Json(ReplayStream(*stream, options));
  }
  std::printf("%s\n", json.dump().c_str());
  return 0;
}
