// SPDX-License-Identifier: Apache-2.0
// The optimised program of a step in a form of bounded size, whatever the size of the model: its
// launches by layer with what they compute and move, and the memory in use at each launch with the
// values that it holds at its peak (program.json; docs/formats.md). Each single node is in the
// files of --dump_graph=fuse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/compile/memory/step_program.h"
#include "core/graph/graph.h"

namespace tessera {

// Launches of one device and step that differ only in indices of their layer, such as those of all
// layers of a stack: how many, and what they do together.
struct ProgramRow {
  Phase phase = Phase::kForward;
  std::string path;    // The layer: "lm.transformer.x_layers[].ffn"; or "".
  std::string name;    // "einsum", "fused add silu mul", "wait for all_gather".
  std::string source;  // "layers/feed_forward/feed_forward.cc:61"; or "".
  std::string result;  // The type of the first result of the first of them; or "".
  int64_t count = 0;
  double flops = 0.0;
  double bytes = 0.0;  // Read and written in memory.
  double sent = 0.0;   // Bytes, by collectives.
};

// A value, or all values with its name in all layers.
struct HeldValue {
  std::string name;
  int64_t count = 0;
  int64_t bytes = 0;
};

struct ProgramMemory {
  struct Point {
    int64_t launch = 0;  // From 0.
    int64_t used = 0;    // Bytes that hold something,
    int64_t bytes = 0;   // and with the gaps between them (MemoryAt).
  };
  std::vector<Point> points;      // At most 256, which contain the peak.
  Point peak;                     // The first maximum; among equal ones that with the fewest gaps.
  std::string at;                 // The name of the launch there, and its layer.
  std::vector<HeldValue> values;  // In use at the peak, the largest first: at most 24.
  HeldValue others;               // All smaller ones, and gaps. The sum of all is the peak.
};

struct StepDigest {
  int64_t launches = 0;
  std::vector<ProgramRow> rows;  // In the order of their first launches: at most 500.
  ProgramRow left_out;           // The others, which move least: `count`, `flops` and bytes of all.
  // The first launches of the backward pass and of the update, without a pipeline, whose
  // microbatches are in all phases at a time.
  std::optional<int64_t> backward, update;
  ProgramMemory memory;
};

StepDigest step_digest(const StepProgram& step);
std::string program_json(const StepDigest& program);

}  // namespace tessera
