// SPDX-License-Identifier: Apache-2.0
// A small model, a mesh, rules and options: the cases over which training must give the same
// numbers. Running them is spmd_trial.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "inputs/base_input.h"
#include "tasks/single_task.h"

namespace tessera {

// How tensors are split, as an experiment's rules say it.
struct TrialRules {
  std::string name;
  std::string weights, activations;
};
// "replica", "fsdp", "tensor", "sequence", …; REQUIREs that there is one of this name.
const TrialRules& strategy(const std::string& name);
const std::vector<TrialRules>& strategies();

enum class TrialModel { kGpt2, kLlama, kPax };

// Every size is divided by eight devices, but for Llama's key heads, by four.
struct TrialSizes {
  int64_t vocab = 64, embed = 32, heads = 8, key_heads = 4, head_dim = 8, hidden = 64;
  int64_t batch = 16, seq = 16;
};

struct SpmdCase {
  TrialModel model = TrialModel::kGpt2;
  std::vector<int64_t> ici = {1, 1, 1}, dcn = {};  // replica data mdl
  std::string strategy = "replica";
  std::optional<TrialRules> own_rules;  // In the place of a strategy by name.
  bool repeated = false;                // One traced block in a loop.
  bool packed = true;                   // Several documents a row.
  bool dropout = false;
  std::string remat = "save_everything";
  int64_t microbatches = 1;
  DType compute = DType::kF32;
  double learning_rate = 1e-3;
  double clip_norm = 0.0;  // Of all gradients together; 0: no clipping.
  int64_t steps = 10;
  int threads = 1;  // Of each device.
  TrialSizes sizes;

  Mesh mesh() const { return Mesh::standard(ici, dcn); }
  const TrialRules& rules() const;
  std::string text() const;        // For messages.
  SpmdCase on_one_device() const;  // The same without a mesh or rules.
};

// The case's task, and its batch number `step`: some documents a row, lengths and weights uneven.
SingleTask::HParams spmd_task(const SpmdCase& trial);
Batch spmd_batch(const SpmdCase& trial, int64_t step);

// Tokens of a batch ["batch seq"], and the model's width.
Type spmd_tokens();
int64_t spmd_model_dims();

// Its training graph as traced, and as device 0 runs it.
Graph traced_step(const SpmdCase& trial);
Graph lowered_step(const SpmdCase& trial);

}  // namespace tessera
