// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/runs.h"

#include <fstream>
#include <regex>

#include "inputs/synthetic_input.h"
#include "tests/composition/model.h"
#include "tests/support/catch.h"
#include "tests/support/tiny_run.h"

namespace tessera {
namespace {

ExperimentConfig run_of(const Composition& composition, int64_t steps, Numerics numerics) {
  const CompositionModel model = model_of(composition, Place::kMesh);
  SingleTask::HParams task = model.task;
  task.train.num_train_steps = steps;
  task.train.summary_interval_steps = 1;
  task.train.eval_interval_steps = 0;
  task.train.numerics = numerics;
  ExperimentConfig config{.task = task,
                          .input = SyntheticInput::HParams{.task = SyntheticTask::kCopy,
                                                           .global_batch_size = 16,
                                                           .seq_len = 8,
                                                           .num_letters = 23,
                                                           .distance = 2}};
  config.mesh.ici_mesh_shape.clear();
  for (const MeshAxis& axis : model.mesh.axes()) config.mesh.ici_mesh_shape.push_back(axis.ici);
  config.rules = {rules_text(model.rules.weights), rules_text(model.rules.activations)};
  return config;
}

}  // namespace

void train(const Composition& composition, int64_t steps, const std::filesystem::path& directory,
           Numerics numerics) {
  RunWith options;
  options.devices = composition.devices();
  options.allow_config_change = true;  // The number of steps.
  REQUIRE(run_tiny(run_of(composition, steps, numerics), directory, options) == 0);
}

std::vector<std::string> lines_of_steps(const std::filesystem::path& directory) {
  static const std::regex kTimes(
      ", \"(tokens_per_sec|step_time|mfu|input_wait|process_memory)\": [^,}]*");
  std::ifstream in(directory / "metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (line.find("\"grad_norm\"") != std::string::npos)
      lines.push_back(std::regex_replace(line, kTimes, ""));
  return lines;
}

}  // namespace tessera
