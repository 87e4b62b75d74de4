// SPDX-License-Identifier: Apache-2.0
// A small model with a mesh, rules and options. Training must give the same numbers for all meshes
// and rules; spmd_trial.h runs the cases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "core/graph/rules.h"
#include "inputs/base_input.h"
#include "layers/experts/routers.h"
#include "tasks/task/model_pipeline.h"
#include "tasks/task/pipeline_schedules.h"
#include "tasks/task/single_task.h"

namespace tessera {

// The sharding of tensors, in the form of an experiment's rules.
struct TrialRules {
  std::string name;
  std::string weights, activations;
};
// "replica", "fsdp", "tensor", "sequence", …; REQUIREs that the name exists.
const TrialRules& strategy(const std::string& name);
const std::vector<TrialRules>& strategies();

enum class TrialModel { kGpt2, kLlama, kPax };

// All sizes are divisible by eight devices, except Llama's key heads, by four.
struct TrialSizes {
  int64_t vocab = 64, embed = 32, heads = 8, key_heads = 4, head_dim = 8, hidden = 64;
  int64_t batch = 16, seq = 16;
};

struct SpmdCase {
  TrialModel model = TrialModel::kGpt2;
  std::vector<int64_t> ici = {1, 1, 1}, dcn = {};  // Sizes of the axes replica, data, mdl.
  std::string strategy = "replica";
  std::optional<TrialRules> own_rules;  // Used instead of a named strategy.
  // Set: every feed-forward layer is a mixture of eight experts, and one shared expert.
  Template<BaseRouter> router;
  Template<UnaryLayer> ffn;  // Set: in the place of every feed-forward layer.
  bool repeated = false;     // Layers are one traced block in a loop.
  bool packed = true;        // Several documents per row.
  bool dropout = false;
  bool attention_bias = false;  // Also in models whose attention has no biases.
  std::string remat = "save_everything";
  int64_t microbatches = 1;
  int64_t layers = 0;  // 0: the model's number of layers.
  // Size of a mesh axis `stage` before the others. More than 1: needs `repeated`, and rules whose
  // weights have layers -> stage.
  int64_t stages = 1;
  Template<PipelineSchedule> schedule;    // Unset: 1F1B.
  std::vector<int64_t> layers_per_piece;  // Empty: equally many.
  int64_t chunk_tokens = 0;               // Tokens of a chunk of the loss; 0: no chunks.
  DType compute = DType::kF32;
  double learning_rate = 1e-3;
  double clip_norm = 0.0;  // Bound on the global norm; 0: no clipping.
  int64_t steps = 10;
  int threads = 1;  // Per device.
  TrialSizes sizes;

  Mesh mesh() const;
  const TrialRules& rules() const;
  std::string text() const;        // For messages.
  SpmdCase on_one_device() const;  // Returns the case without mesh, rules and chunks of the loss.
  AxisRules axis_rules() const;
};

// The case's task, and its batch number `step`: several documents per row, with different lengths
// and weights.
SingleTask::HParams spmd_task(const SpmdCase& trial);
Batch spmd_batch(const SpmdCase& trial, int64_t step);

// The type of a batch's ids ["batch seq"], and the model's width.
Type spmd_tokens();
int64_t spmd_model_dims();

// Returns how the case's mesh divides the layers; nullopt if it has one stage.
std::optional<ModelPipeline> spmd_pipeline(const SpmdCase& trial);

// The case's training graph as traced, and as lowered for device 0.
Graph traced_step(const SpmdCase& trial);
Graph lowered_step(const SpmdCase& trial);

}  // namespace tessera
