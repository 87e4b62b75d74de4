// SPDX-License-Identifier: Apache-2.0
// Test cases that cannot run on this machine. A program all of whose test cases were skipped ends
// with the code that ctest shows as skipped (tests/main.cc).
#pragma once

#include <string>

namespace tessera {

// Says why and counts the test case, which then returns.
void skip_test(const std::string& reason);
int tests_skipped();

}  // namespace tessera
