// SPDX-License-Identifier: Apache-2.0
// The program flat_tokens: builds, imports and inspects token files, and trains tokenizers.
#include <iostream>

#include "core/base/process.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"

[[gnu::section(".preinit_array"),
  gnu::used]] constinit const tessera::BeforeLibraries before_libraries =
    tessera::require_address_space;

int main(int argc, char** argv) {
  tessera::prepare_program();
  return tessera::run_flat_tokens({argv + 1, argv + argc}, std::cout, std::cerr);
}
