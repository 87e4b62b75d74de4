// SPDX-License-Identifier: Apache-2.0
// The program flat_tokens, as a function that tests can call.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace tessera {

// `arguments` without the program's name. Returns the exit code: 0 done, 1 the data is bad or
// cannot be written, 2 bad usage.
int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors);

}  // namespace tessera
