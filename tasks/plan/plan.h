// SPDX-License-Identifier: Apache-2.0
// What a step will cost, known before it is taken and for any mesh, with no such devices at hand:
// FLOPs, memory by class, and every collective with the line of layer code that it serves. One
// structure, which plan_report.h prints for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/mesh.h"
#include "tasks/session/model_session.h"

namespace tessera {

// Bytes of one thing among others.
struct NamedBytes {
  std::string name;
  int64_t bytes = 0;
};

// Links that a collective uses: those within a slice, or also the slow ones between slices.
enum class Link { kIci, kDcn };
std::string_view link_name(Link link);

// Executions that differ in nothing but the layer's index are one.
struct PlannedCollective {
  std::string op;                      // "all_gather"
  std::string value;                   // What it moves.
  std::vector<std::string> mesh_axes;  // Over which.
  Link link = Link::kIci;
  DType dtype = DType::kF32;
  int64_t bytes = 0;   // Sent by a device in one execution.
  int64_t count = 0;   // Executions a step.
  std::string source;  // "layers/feed_forward/feed_forward.cc:61"
  std::string path;    // "lm.transformer.x_layers[].ffn"
  Phase phase = Phase::kForward;
  int64_t bytes_per_step() const { return bytes * count; }
};

// All collectives over the same mesh axes.
struct AxisTotal {
  std::vector<std::string> mesh_axes;
  Link link = Link::kIci;
  int64_t count = 0;
  int64_t bytes = 0;  // Sent by a device in a step.
};

struct Plan {
  int64_t parameters = 0;
  int64_t devices = 1;
  std::vector<MeshAxis> mesh;
  int64_t tokens_per_step = 0;
  double flops_per_step = 0.0;     // Of the model: nothing recomputed, causal half of attention.
  double flops_per_device = 0.0;   // That one device executes in a step, recomputation included.
  int64_t launches = 0;            // Of a device, in a step.
  std::vector<NamedBytes> memory;  // At the fullest moment; adds up to the peak.
  int64_t peak = 0;                // Of a training step.
  int64_t arena = 0;               // Of all programs: what a device allocates.
  std::vector<NamedBytes> saved;   // For the backward pass, most first.
  std::vector<PlannedCollective> collectives;  // In the order of the model.
  std::vector<AxisTotal> totals;               // Most first.
};

// The plan of a training step: its graph as traced, its program in the executor, and the tokens of
// its global batch.
Plan make_plan(ModelSession& session, const Graph& traced, int program, int64_t tokens_per_step);

}  // namespace tessera
