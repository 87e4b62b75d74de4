// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/directory/graph_drawing.h"

#include <exception>
#include <memory>
#include <system_error>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/terminal.h"
#include "core/graph/text.h"
#include "core/hparams/fields.h"

namespace tessera {

GraphDrawing::GraphDrawing(const Graph& graph, const std::filesystem::path& stem,
                           std::chrono::seconds time_limit) {
  const std::string text_file = stem.string() + ".dot", drawing = stem.string() + ".svg";
  write_file_atomically(text_file, graph_dot(graph));
  std::error_code ignored;
  std::filesystem::remove(drawing, ignored);  // It may be of an earlier graph.
  if (!program_exists("dot")) {
    note_ = fmt::format(
        "{} is not drawn because graphviz is not installed; install it (apt install graphviz), "
        "then run: dot -Tsvg {} -o {}",
        text_file, text_file, drawing);
    return;
  }
  try {
    folder_.emplace(std::filesystem::absolute(drawing));
    // The limits also end a `dot` that survives this process. File names are arguments of the
    // script, not part of its text.
    dot_.emplace(std::vector<std::string>{
        "sh", "-c",
        "ulimit -t \"$4\"; timeout --foreground \"$4\" nice -n 10 dot -Tsvg -o \"$2\" \"$1\" && "
        "mv -fT \"$2\" \"$3\" || rm -f \"$2\"; rmdir \"$5\" 2>/dev/null",
        "sh", std::filesystem::absolute(text_file).string(),
        (folder_->place() / "graph.svg").string(), std::filesystem::absolute(drawing).string(),
        std::to_string(time_limit.count()), folder_->place().string()});
  } catch (const Error& error) {
    note_ = fmt::format("{} is not drawn: {}", text_file, error.what());
  }
}

GraphDrawing::~GraphDrawing() {
  // A small graph is drawn in less, unless the machine is busy.
  constexpr std::chrono::seconds kPatience{2};
  if (dot_ && std::uncaught_exceptions() == 0 &&
      !dot_->wait(std::chrono::steady_clock::now() + kPatience)) {
    folder_->release();
    dot_->release();
    return;
  }
  cancel();
}

bool GraphDrawing::is_done() {
  return !dot_ || dot_->wait(std::chrono::steady_clock::time_point::min()).has_value();
}

void GraphDrawing::cancel() {
  if (!dot_) return;
  dot_.reset();  // Kills `dot` if it still runs.
  folder_.reset();
}

std::function<void(std::string_view, const Graph&)> graph_dumper(
    std::optional<GraphStage> dumped, const std::filesystem::path& directory,
    const ProcessGroup& processes) {
  if (!dumped || !processes.is_first()) return nullptr;
  return [dumped = enum_name(*dumped), directory, drawing = std::shared_ptr<GraphDrawing>()](
             std::string_view stage, const Graph& graph) mutable {
    if (stage != dumped) return;
    std::filesystem::create_directories(directory);
    const std::filesystem::path file = directory / fmt::format("graph_{}", stage);
    write_file_atomically(file.string() + ".txt", graph_text(graph));
    drawing = std::make_shared<GraphDrawing>(graph, file);
    if (!drawing->note().empty()) print_error("note: " + drawing->note());
  };
}

}  // namespace tessera
