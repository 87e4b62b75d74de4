// SPDX-License-Identifier: Apache-2.0
// adam_update on the virtual GPU at addresses of views.
#include "core/ops/optimizer.h"

#include <cmath>
#include <string>
#include <vector>

#include "tests/plugins/cuda/test_devices.h"
#include "tests/support/catch.h"
#include "tests/support/launched_graph.h"
#include "tests/support/trial.h"

namespace tessera::cuda {
namespace {

// A gradient that is a slice is a view at any multiple of 4 bytes.
TEST_CASE("adam_update on a GPU has the same bits at addresses that no vector access allows") {
  const TestDevices devices;
  const std::string slot = "f32[\"row=7 column=151\"]", scalar = "f32[\"\"]";
  Trial trial(Mesh(), {slot, slot, slot, slot, scalar, scalar, scalar, "bool[\"\"]"});
  const std::vector<Tensor>& in = trial.inputs();
  const AdamState next =
      adam_update({in[0], in[1], in[2]}, in[3], in[4], in[5], in[6], in[7], {.weight_decay = 0.1});
  trial.graph().add_output("parameter", next.parameter.id());
  trial.graph().add_output("first", next.first_moment.id());
  trial.graph().add_output("second", next.second_moment.id());
  ReferenceInputs inputs = random_inputs(trial.graph(), 7);
  for (double& moment : inputs.at(trial.graph().inputs()[2].name)) moment = std::abs(moment);
  inputs.at(trial.graph().inputs()[5].name) = {3.0};
  inputs.at(trial.graph().inputs()[7].name) = {1.0};
  const GraphResults aligned = run_launched(*devices.gpu, trial.graph(), inputs);
  REQUIRE(aligned.at("parameter") != inputs.at(trial.graph().inputs()[0].name));
  for (const int64_t shift : {1, 2, 3})
    REQUIRE(element_difference(run_launched(*devices.gpu, trial.graph(), inputs, {.shift = shift}),
                               aligned) == "");
}

}  // namespace
}  // namespace tessera::cuda
