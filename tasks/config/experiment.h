// SPDX-License-Identifier: Apache-2.0
// What an experiment is: a struct of knobs whose build() gives the whole configuration tree of a
// run. Plain data; running it is trainer.h. Experiments register in plugins/registry.h.
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

// The device mesh as configured. Sizes are in the order of `axis_names`.
struct MeshConfig {
  static constexpr std::string_view kName = "Mesh";
  std::vector<std::string> axis_names = {"replica", "data", "mdl"};
  std::vector<int64_t> ici_mesh_shape;  // Empty: the devices at hand go to `data`.
  std::vector<int64_t> dcn_mesh_shape;  // Empty: one slice.
  FIELDS(axis_names, ici_mesh_shape, dcn_mesh_shape)
};

// What a run has to lay a mesh on.
struct DevicesAtHand {
  DevicesAtHand(int64_t per_process, int64_t processes = 1)
      : per_process(per_process), processes(processes) {}
  int64_t per_process;
  int64_t processes;
  int64_t total() const { return per_process * processes; }
};

// A mesh shape for these axes with all devices along `data`, or along the first axis without one.
std::vector<int64_t> shape_along_data(const std::vector<std::string>& axis_names, int64_t devices);

// The mesh for these devices; Error, with ways to mend it, if the shapes ask for another number.
Mesh make_mesh(const MeshConfig& config, const DevicesAtHand& devices);
// The mesh the shapes ask for, with no such devices at hand; without a shape, as make_mesh.
Mesh planned_mesh(const MeshConfig& config, int64_t devices);

// The root of a run's configuration: what hparams.toml holds and `--set` reaches.
struct ExperimentConfig {
  static constexpr std::string_view kName = "Experiment";
  MeshConfig mesh;
  RulesConfig rules;
  Template<BaseTask> task;
  Template<BaseInput> input;
  std::map<std::string, Template<BaseInput>> eval_inputs;    // By the dataset's name in eval lines.
  std::map<std::string, Template<BaseInput>> decode_inputs;  // Of --mode=decode; none: those.
  EvaluationHParams eval;                                    // How eval_inputs are scored.
  FIELDS(mesh, rules, task, input, eval_inputs, decode_inputs, eval)
};

// The same, with an entry in eval.datasets for each of eval_inputs, so that --set finds them all,
// and none that says nothing for a dataset that is not there.
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

  std::vector<int64_t> ici_mesh_shape;  // "replica data mdl"; empty: all devices go to data.
  std::vector<int64_t> dcn_mesh_shape;
  Field<Strategy> strategy;  // Replaces the rules of build(); unset: those.
  FIELDS(ici_mesh_shape, dcn_mesh_shape, strategy)

 protected:
  // The mesh of the two knobs, on the usual axes.
  MeshConfig mesh() const {
    return {.ici_mesh_shape = ici_mesh_shape, .dcn_mesh_shape = dcn_mesh_shape};
  }
};

// Data that a run of an experiment would read and that are not there. An experiment whose data a
// user has to get may have a member function
//   std::optional<MissingData> missing_data(const ExperimentConfig& config) const;
// which is asked before a run that reads data, with what build() gave and --set changed. Without
// one, the inputs say what they do not find.

struct MissingData {
  std::string what;                   // Which file, and where it was looked for.
  std::vector<std::string> commands;  // That make them, one a line, for a shell.
  std::string advice;                 // A sentence or two for after the commands; may be empty.
};

}  // namespace tessera
