// SPDX-License-Identifier: Apache-2.0
// Drawings of graphs: a .dot file, and the .svg that graphviz makes of it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/process.h"
#include "core/graph/graph.h"
#include "core/io/file.h"
#include "core/runtime/comm/process_group.h"

namespace tessera {

// Writes STEM.dot and lets `dot` draw it to STEM.svg in the background, at low priority and with at
// most `time_limit` of time, and of processor time. A drawing that fails or takes too long is
// dropped; it never fails the run.
class GraphDrawing {
 public:
  GraphDrawing(const Graph& graph, const std::filesystem::path& stem,
               std::chrono::seconds time_limit = std::chrono::seconds(20));
  // Waits for `dot`, but for two seconds at most: then `dot` finishes the drawing by itself, after
  // the end of the run. Does not wait after cancel() or while an exception propagates: a failed
  // process must not delay its report.
  ~GraphDrawing();

  // Whether `dot` has ended. A drawing in a long run is asked between steps: until then an ended
  // `dot` remains a zombie process.
  bool is_done();
  void cancel();  // Stops `dot`, unless it has ended.

  // What the user must do to get the drawing, or "".
  const std::string& note() const { return note_; }

 private:
  std::string note_;
  std::optional<NewDirectory> folder_;  // What `dot` writes into; its file is renamed at the end.
  std::optional<ChildProcess> dot_;
};

// A stage of compilation after which --dump_graph writes the step's graph.
enum class GraphStage { kTrace, kRemat, kLower, kFuse };

// Writes the training step at this stage to the directory, as text, DOT and SVG. Null without a
// stage.
std::function<void(std::string_view, const Graph&)> graph_dumper(
    std::optional<GraphStage> dumped, const std::filesystem::path& directory,
    const ProcessGroup& processes);

}  // namespace tessera
