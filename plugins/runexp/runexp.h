// SPDX-License-Identifier: Apache-2.0
// The program runexp as a function, for tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

// `arguments` without the program's name. Returns the exit code: 0 done, 1 the run failed, 2 bad
// usage or configuration. Errors are one line on `errors`. Under mpirun or srun this is one of
// several processes, which print each message once and return the same code.
int run_runexp(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& errors);

}  // namespace tessera
