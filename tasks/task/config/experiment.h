// SPDX-License-Identifier: Apache-2.0
// An experiment: a struct of knobs whose build() returns the configuration tree of a run. Plain
// data; plugins/registry.h registers experiments, plugins/runexp runs them.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/rules.h"
#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/base_input.h"
#include "tasks/task/base_task.h"
#include "tasks/task/config/mesh_config.h"
#include "tasks/task/config/search_space.h"
#include "tasks/task/hparams.h"

namespace tessera {

// Axis rules as text, "embed -> data, mlp -> mdl, residual: seq -> mdl" (core/graph/rules.h).
struct RulesConfig {
  static constexpr std::string_view kName = "Rules";
  std::string weights;
  std::string activations = "batch -> (replica, data)";
  FIELDS(weights, activations)
};
AxisRules make_rules(const RulesConfig& config);

// Ready-made rules: the usual ways to split a transformer over `replica × data × mdl`, or for long
// sequences `replica × data × ctx × mdl`, or for pipelines `stage × replica × data × mdl`. All of
// them split the batch over `replica` and `data`. An experiment may also change one or write its
// own (docs/parallelism.md). Layers do not know them.
enum class Strategy {
  kReplicas,            // Data parallelism: weights replicated.
  kFullySharded,        // FSDP (ZeRO-3): weights, gradients and optimizer state over `data`.
  kTensor,              // Megatron tensor parallelism: heads, mlp and vocab over `mdl`.
  kSequence,            // kTensor plus Megatron sequence parallelism of the residual over `mdl`.
  kFullyShardedTensor,  // kFullySharded and kTensor.
  kFullyShardedSequence,
  kPax,      // kFullyShardedTensor with the residual's embed axis over `mdl`, as in Pax.
  kExperts,  // kFullyShardedTensor with the experts of a mixture over `data`.
  // The sequence over `ctx`, in attention the heads instead (DeepSpeed-Ulysses; Jacobs et al.,
  // 2023, arXiv 2309.14509).
  kContext,
  kFullyShardedContext,        // Weights at rest over `data` and `ctx`.
  kFullyShardedTensorContext,  // In attention the heads over `mdl` and `ctx`.
  // Like the three above, but attention keeps the sequence over `ctx` and passes keys and values
  // around (ring attention; Liu et al., 2023, arXiv 2310.01889).
  kRing,
  kFullyShardedRing,
  kFullyShardedTensorRing,
  // The layers over `stage`; task.train.pipeline_schedule is how microbatches go through them.
  kPipeline,
  kFullyShardedPipeline,  // The weights of a stage over `data`.
  kTensorPipeline,        // kTensor in each stage.
  kFullyShardedTensorPipeline,
};

constexpr std::array<EnumName<Strategy>, 18> enum_names(Strategy) {
  using enum Strategy;
  return {{{kReplicas, "replicas"},
           {kFullySharded, "fsdp"},
           {kTensor, "tensor"},
           {kSequence, "sequence"},
           {kFullyShardedTensor, "fsdp_tensor"},
           {kFullyShardedSequence, "fsdp_sequence"},
           {kPax, "pax"},
           {kExperts, "experts"},
           {kContext, "context"},
           {kFullyShardedContext, "fsdp_context"},
           {kFullyShardedTensorContext, "fsdp_tensor_context"},
           {kRing, "ring"},
           {kFullyShardedRing, "fsdp_ring"},
           {kFullyShardedTensorRing, "fsdp_tensor_ring"},
           {kPipeline, "pipeline"},
           {kFullyShardedPipeline, "fsdp_pipeline"},
           {kTensorPipeline, "tensor_pipeline"},
           {kFullyShardedTensorPipeline, "fsdp_tensor_pipeline"}}};
}

RulesConfig strategy_rules(Strategy strategy);
// The names with those that the strategy needs and they lack: `ctx` before `mdl` (without that, at
// the end), if it splits the sequence, and `stage` as the first one, if it splits the layers.
std::vector<std::string> strategy_axes(Strategy strategy, std::vector<std::string> axis_names);

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

// Adds the dataset of eval.harness, and an entry to eval.datasets for each of eval_inputs, so that
// --set finds them all; removes default entries of datasets that do not exist.
ExperimentConfig with_all_evals(ExperimentConfig config);

// The steps of `runexp --smoke`.
inline constexpr int64_t kSmokeSteps = 5;

// Members of a derived struct are its knobs; it lists its own with FIELDS and names its base with
// `using Base = …`. A variant that only changes values needs neither. `--set num_layers=4` sets
// knobs before build() is called.
class Experiment {
 public:
  virtual ~Experiment() = default;
  virtual ExperimentConfig build() const = 0;
  // Returns the result of build(), with the rules and the mesh axes of `strategy` if that is set.
  ExperimentConfig config() const;

  // Makes the experiment small for `runexp --smoke`, which trains kSmokeSteps steps on a few CPU
  // devices within seconds. Called after the constructor and before --set, which still overrides.
  // An override calls the shrink() of its base first, then makes its own knobs small:
  //   void shrink() override {
  //     Experiment::shrink();
  //     num_layers = 2;
  //     …
  //   }
  // The family's base overrides it once for all of its recipes. It must not change what graph is
  // built, only its sizes:
  //   stays    the axes of the mesh, the kinds of layers and their options, the ratio of heads to
  //            key-value heads, the mixture of experts (which layers, how many for a token), the
  //            pipeline's schedule and its chunks, remat policy, optimizer, dtypes
  //   small    layers: 2, or 2 for each piece of a pipeline, or one period of a pattern; widths,
  //            with heads of 8; vocabulary 264 (bytes); sequence 32; experts and rows of the batch:
  //            the fewest that the mesh and the microbatches divide
  //   replaced data by generated sequences; lengths of the schedule by ones that fit kSmokeSteps
  // Sizes are to be set, not divided, so that recipes of all sizes become equally small; only a
  // ratio is read from the recipe.
  // Here: each axis of ici_mesh_shape and dcn_mesh_shape has at most 2 devices. runexp limits the
  // knob num_train_steps to kSmokeSteps itself (without such a knob, task.train.num_train_steps).
  virtual void shrink();

  // Checks constraints between knobs: throws an Error (fail(…), core/base/error.h) that names the
  // knobs, what was expected, and a value that works. runexp adds the experiment's name and the
  // command's --set. Called in every mode with --exp, after --smoke and --set and before build();
  // not with --config, where build() and its knobs are not used. An override calls the validate()
  // of its base first:
  //   void validate() const override {
  //     Base::validate();
  //     if (model_dims % num_heads != 0)
  //       fail("num_heads={} does not divide model_dims={}", num_heads, model_dims);
  //   }
  virtual void validate() const {}

  // The trials of `runexp --mode=sweep` (docs/sweeps.md): which knobs and fields vary, and how.
  // Called after --set. Here: nothing to vary, so that the command must say it with --sweep.
  virtual Sweep search() const { return {}; }

  // Sizes of "replica data mdl", or with a strategy that needs more axes of "replica data ctx mdl"
  // or "stage replica data mdl"; empty: all devices on data.
  std::vector<int64_t> ici_mesh_shape;
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

// A file of settings: what --set_file reads and --search writes. TOML, with the arguments of --set
// in their order:
//
//   set = [
//     "strategy=fsdp",
//     "mesh.ici_mesh_shape=[1,8,1]",
//   ]

// Each "path=value". Error with the file for one that cannot be read, is not TOML, or has anything
// else than a list `set` of strings.
std::vector<std::string> read_set_file(const std::filesystem::path& file);

// The text of such a file; `heading` becomes comment lines.
std::string set_file_text(const std::vector<std::string>& sets, std::string_view heading);

}  // namespace tessera
