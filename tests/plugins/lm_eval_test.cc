// SPDX-License-Identifier: Apache-2.0
// The adapter for lm-evaluation-harness, beside the harness's own backend for transformers.
#include <cstdlib>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/skip.h"

namespace tessera {
namespace {

// Needs TESSERA_PYTHON to name a Python that has lm-eval, accelerate, transformers and torch.
TEST_CASE("lm-evaluation-harness gets the scores of its own backend", "[full]") {
  const std::string python = python_with("lm_eval");
  if (python.empty()) {
    WARN("skipped: no Python with lm-eval (TESSERA_PYTHON)");
    return;
  }
  const std::string command =
      fmt::format("{} {}/tests/plugins/lm_eval/side_by_side.py {}/bin/runexp", python,
                  TESSERA_SOURCE_DIR, TESSERA_BINARY_DIR);
  REQUIRE(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace tessera
