// SPDX-License-Identifier: Apache-2.0
// runexp: trains, evaluates and explains experiments.
#include <iostream>

#include "core/base/process.h"
#include "plugins/runexp.h"

int main(int argc, char** argv) {
  tessera::prepare_program();
  return tessera::run_runexp({argv + 1, argv + argc}, std::cout, std::cerr);
}
