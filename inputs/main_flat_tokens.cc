// SPDX-License-Identifier: Apache-2.0
// flat_tokens: builds flat-tokens files from text and shows what is in them.
#include <iostream>

#include "core/base/process.h"
#include "inputs/flat_tokens_tool.h"

int main(int argc, char** argv) {
  tessera::prepare_standard_streams();
  return tessera::run_flat_tokens({argv + 1, argv + argc}, std::cout, std::cerr);
}
