#include "policy/offline/schedule_csv.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace spillway::policy {
namespace {

const char* NameOf(Place place) {
  return place == Place::kGpu ? "gpu" : place == Place::kHost ? "host" : "ssd";
}

std::string Micros(Nanos time) {
  return absl::StrFormat("%d.%03d", time / 1000, static_cast<int>(time % 1000));
}

}  // namespace

std::string ScheduleCsv(const Execution& execution) {
  std::string text = "kind,iteration,id,first,last,src,dst,start_us,end_us\n";
  for (const ScheduleEvent& event : execution.events) {
    switch (event.kind) {
      case ScheduleEvent::Kind::kKernel:
        absl::StrAppend(&text, "kernel,", event.iteration, ",", event.id, ",,,,,", Micros(event.start), ",",
                        Micros(event.end), "\n");
        break;
      case ScheduleEvent::Kind::kMove:
        absl::StrAppend(&text, "move,", event.iteration, ",", event.id, ",", event.first_piece, ",",
                        event.last_piece, ",", NameOf(event.from), ",", NameOf(event.to), ",",
                        Micros(event.start), ",", Micros(event.end), "\n");
        break;
      case ScheduleEvent::Kind::kDrop:
        absl::StrAppend(&text, "drop,", event.iteration, ",", event.id, ",", event.first_piece, ",",
                        event.last_piece, ",", NameOf(event.from), ",,", Micros(event.start), ",\n");
        break;
      case ScheduleEvent::Kind::kInit:
        absl::StrAppend(&text, "init,0,", event.id, ",,,,", NameOf(event.to), ",,\n");
        break;
    }
  }
  return text;
}

}  // namespace spillway::policy
