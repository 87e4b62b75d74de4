// SPDX-License-Identifier: Apache-2.0
// Drawings of graphs: a .dot file, and the .svg that graphviz makes of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/process.h"
#include "core/graph/graph.h"

namespace tessera {

// Writes STEM.dot and lets `dot` draw it to STEM.svg in the background, at low priority. A drawing
// that fails or takes too long is dropped; it never fails the run.
class GraphDrawing {
 public:
  GraphDrawing(const Graph& graph, const std::filesystem::path& stem,
               std::chrono::seconds time_limit = std::chrono::seconds(20));
  ~GraphDrawing();  // Waits for `dot` until the time limit since the start.

  // What the user must do to get the drawing, or "".
  const std::string& note() const { return note_; }

 private:
  std::string note_;
  std::filesystem::path part_;  // The file that `dot` writes, renamed when it is complete.
  std::chrono::steady_clock::time_point deadline_;
  std::optional<ChildProcess> dot_;
};

}  // namespace tessera
