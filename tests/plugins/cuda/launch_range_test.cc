// SPDX-License-Identifier: Apache-2.0
// Tests the ranges that a profiler sees.
#include "tests/plugins/cuda/tiny_run.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

namespace tessera::cuda {
namespace {

TEST_CASE("a profiler sees the phase, the layer and the op of each launch") {
  const std::string library = TESSERA_BINARY_DIR "/lib/virtual_gpu/fake_profiler.so";
  if (!std::filesystem::exists(library)) return skip_test("the toolkit has no NVTX");
  const TinyRun tiny;
  const std::filesystem::path output = tiny.folder() / "ranges";
  tiny.train(
      "profiled", "--device=cuda --set num_train_steps=4",
      {{"NVTX_INJECTION64_PATH", library}, {"TESSERA_FAKE_PROFILER_OUTPUT", output.string()}});
  const std::string ranges = read_bytes(output);
  REQUIRE_THAT(ranges, Catch::StartsWith("domain tessera\n") &&
                           Catch::Contains("\n0 forward lm.transformer.x_layers[0].ffn: ") &&
                           Catch::Contains("\n0 backward lm.transformer.x_layers[1].attention: ") &&
                           Catch::Contains("\n0 update lm.softmax.w and ") &&
                           Catch::Contains("\n0 update: squared_norm\n") &&
                           Catch::Contains("\n0 the step as a CUDA graph\n") &&
                           !Catch::Contains("\n1 "));
}

}  // namespace
}  // namespace tessera::cuda
