// SPDX-License-Identifier: Apache-2.0
// The slices of a run's trace.json.gz (core/runtime/executor/launch_trace.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class TraceTrackKind { kCompute, kCommunication };

// A launch, a wait, or what they are parts of: a step, a task, a phase, a layer.
struct TraceSlice {
  int64_t device = 0;
  TraceTrackKind track = TraceTrackKind::kCompute;
  std::string name;    // "einsum", "wait for all_gather"; "step 3".
  std::string line;    // The layer's line, for a launch or wait.
  std::string launch;  // launch_type() of a launch; "" in traces of older builds.
  int64_t begin_ns = 0, end_ns = 0;
  size_t index = 0;        // Position in the file, where a slice follows those within it.
  bool is_launch = false;  // Or a wait.

  double seconds() const { return static_cast<double>(end_ns - begin_ns) * 1e-9; }
  bool is_wait() const { return is_launch && name.starts_with("wait for "); }
  // The number in "step 3", counted from 0; nullopt for any other slice.
  std::optional<int64_t> step() const;
};

// The slices in the order of the file. `where` names it in messages. Error if the text is not the
// trace of a run, or has no launches.
std::vector<TraceSlice> trace_slices(std::string_view trace, const std::string& where);

// The decompressed text of the file. Error if it is damaged or larger than 256 MiB.
std::string read_trace(const std::filesystem::path& file);

}  // namespace tessera
