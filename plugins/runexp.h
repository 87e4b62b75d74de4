// SPDX-License-Identifier: Apache-2.0
// The program runexp, as a function that tests can call.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

// `arguments` without the program's name. Returns the exit code: 0 done, 1 the run failed, 2 bad
// usage or configuration. Errors are one line on `errors`. Started by mpirun or srun it is one of
// several processes, which print once and end with one code.
int run_runexp(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& errors);

}  // namespace tessera
