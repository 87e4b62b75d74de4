// SPDX-License-Identifier: Apache-2.0
// runexp: trains, evaluates and explains experiments.
#include <iostream>

#include "core/base/process.h"
#include "plugins/runexp.h"

int main(int argc, char** argv) {
  if (const int failed = tessera::prepare_program("runexp"); failed != 0) return failed;
  return tessera::run_runexp({argv + 1, argv + argc}, std::cout, std::cerr);
}
