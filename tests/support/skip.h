// SPDX-License-Identifier: Apache-2.0
// Test cases that cannot run on this machine. If all test cases of a program were skipped, it exits
// with the code that ctest shows as skipped (tests/main.cc).
#pragma once

#include <string>

namespace tessera {

// Prints the reason and counts the test case as skipped; the test case must then return.
void skip_test(const std::string& reason);
int tests_skipped();

}  // namespace tessera
