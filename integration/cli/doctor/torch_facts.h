// PyTorch in a Python: asked of that Python itself, in a process of its own that imports nothing of PyTorch,
// within 30 s. `spillway doctor` calls it; one thread. A failure is the problem in the answer.

#ifndef SPILLWAY_INTEGRATION_CLI_DOCTOR_TORCH_FACTS_H_
#define SPILLWAY_INTEGRATION_CLI_DOCTOR_TORCH_FACTS_H_

#include <string>

#include "integration/cli/doctor/facts.h"

namespace spillway::integration {

// `named`: the path of a Python, or a name that is looked up in PATH; empty: the first python3 or python in
// the folders of `path`, as a shell would take it. In a virtual environment that is the environment's. If the
// child ends without an answer, the last line that it wrote to standard error is the reason.
TorchFacts AskPython(const std::string& named, const std::string& path);

// Reads the Python's answer. Public for its test.
void ReadAnswer(const std::string& text, TorchFacts* facts);

}  // namespace spillway::integration

#endif  // SPILLWAY_INTEGRATION_CLI_DOCTOR_TORCH_FACTS_H_
