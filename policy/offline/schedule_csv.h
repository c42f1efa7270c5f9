// ScheduleCsv: the events of an execution as a table (`spillway simulate --schedule`), one row each: kernels,
// moves, drops and the initial places of persistent tensors. tests/policy/referee reads it. Pure;
// thread-safe; no call fails.

#ifndef SPILLWAY_POLICY_OFFLINE_SCHEDULE_CSV_H_
#define SPILLWAY_POLICY_OFFLINE_SCHEDULE_CSV_H_

#include <string>

#include "policy/simulator/execution.h"

namespace spillway::policy {

// The header is kind,iteration,id,first,last,src,dst,start_us,end_us. Times are in microseconds, exact.
std::string ScheduleCsv(const Execution& execution);

}  // namespace spillway::policy

#endif  // SPILLWAY_POLICY_OFFLINE_SCHEDULE_CSV_H_
