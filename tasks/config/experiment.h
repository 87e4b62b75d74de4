// SPDX-License-Identifier: Apache-2.0
// An experiment: a struct of knobs whose build() returns the configuration tree of a run. Plain
// data; plugins/registry.h registers experiments, tasks/modes/make_run.h runs them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/mesh.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/base_input.h"
#include "tasks/base_task.h"
#include "tasks/config/strategies.h"
#include "tasks/eval_hparams.h"

namespace tessera {

// The device mesh. Sizes are in the order of `axis_names`.
struct MeshConfig {
  static constexpr std::string_view kName = "Mesh";
  std::vector<std::string> axis_names = {"replica", "data", "mdl"};
  std::vector<int64_t> ici_mesh_shape;  // Empty: all available devices go to `data`.
  std::vector<int64_t> dcn_mesh_shape;  // Empty: one slice.
  FIELDS(axis_names, ici_mesh_shape, dcn_mesh_shape)
};

// The devices that a mesh can use.
struct DevicesAtHand {
  DevicesAtHand(int64_t per_process, int64_t processes = 1)
      : per_process(per_process), processes(processes) {}
  int64_t per_process;
  int64_t processes;
  int64_t total() const { return per_process * processes; }
};

// A mesh shape with all devices on `data`, or on the first axis if there is no `data`.
std::vector<int64_t> shape_along_data(const std::vector<std::string>& axis_names, int64_t devices);

// The mesh for these devices. Error, with fixes, if the shapes ask for another number of devices.
Mesh make_mesh(const MeshConfig& config, const DevicesAtHand& devices);
// The mesh that the shapes describe, whether or not the devices exist; without a shape, as
// make_mesh.
Mesh planned_mesh(const MeshConfig& config, int64_t devices);

// The root of a run's configuration: the content of hparams.toml, reachable by `--set`.
struct ExperimentConfig {
  static constexpr std::string_view kName = "Experiment";
  MeshConfig mesh;
  RulesConfig rules;
  Template<BaseTask> task;
  Template<BaseInput> input;
  std::map<std::string, Template<BaseInput>> eval_inputs;    // By dataset name in eval lines.
  std::map<std::string, Template<BaseInput>> decode_inputs;  // For --mode=decode; default: those.
  EvaluationHParams eval;                                    // How eval_inputs are scored.
  FIELDS(mesh, rules, task, input, eval_inputs, decode_inputs, eval)
};

// Adds an entry to eval.datasets for each of eval_inputs, so that --set finds them all, and removes
// default entries of datasets that do not exist.
ExperimentConfig with_all_evals(ExperimentConfig config);

// Members of a derived struct are its knobs; it lists its own with FIELDS and names its base with
// `using Base = …`. A variant that only changes values needs neither. `--set num_layers=4` sets
// knobs before build() is called.
class Experiment {
 public:
  virtual ~Experiment() = default;
  virtual ExperimentConfig build() const = 0;
  // What build() gives, with the rules of `strategy` if that is set.
  ExperimentConfig config() const;

  std::vector<int64_t> ici_mesh_shape;  // "replica data mdl"; empty: all devices on data.
  std::vector<int64_t> dcn_mesh_shape;
  Field<Strategy> strategy;  // Replaces the rules of build(); unset: those.
  FIELDS(ici_mesh_shape, dcn_mesh_shape, strategy)

 protected:
  // The mesh of the two knobs, with the default axes.
  MeshConfig mesh() const {
    return {.ici_mesh_shape = ici_mesh_shape, .dcn_mesh_shape = dcn_mesh_shape};
  }
};

// Input data that a run needs and that do not exist. An experiment may have a member function
//   std::optional<MissingData> missing_data(const ExperimentConfig& config) const;
// It is called with the final configuration before a run that reads data. Without it, the inputs
// report missing files.

struct MissingData {
  std::string what;                   // The missing file, and where it was expected.
  std::vector<std::string> commands;  // Shell commands that make it, one per line.
  std::string advice;                 // One or two sentences after the commands; may be empty.
};

}  // namespace tessera
