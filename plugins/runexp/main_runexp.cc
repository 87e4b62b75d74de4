// SPDX-License-Identifier: Apache-2.0
// runexp: trains, evaluates and explains experiments.
#include <iostream>

#include "core/base/process.h"
#include "plugins/runexp/runexp.h"

[[gnu::section(".preinit_array"),
  gnu::used]] constinit const tessera::BeforeLibraries before_libraries =
    tessera::require_address_space;

int main(int argc, char** argv) {
  tessera::prepare_program();
  return tessera::run_runexp({argv + 1, argv + argc}, std::cout, std::cerr);
}
