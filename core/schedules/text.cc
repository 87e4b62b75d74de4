// SPDX-License-Identifier: Apache-2.0
// The text form of a pipeline schedule, to write one by hand and to show one on a terminal:
//
//   # 1F1B: 2 stages, 3 microbatches
//   # tick    0  1  2  3  4  5  6  7
//   stage 0: F0 F1  . B0 F2 B1  . B2
//   stage 1:  . F0 B0 F1 B1 F2 B2  .
//
// One line is a stage, and one cell a tick: F, B, I or W (table.h) with the number of the
// microbatch, as in F2, and of the chunk unless it is 0, as in F2.1; or a dot for an idle tick. The
// words `stage 0:` may be left out. `#` starts a comment.
#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/schedules/table.h"

namespace tessera {
namespace {

constexpr std::string_view kIdle = ".";
constexpr std::string_view kSpace = " \t\r";
constexpr int64_t kMostNumbers = 1'000'000;  // Larger numbers are misprints.

// Parses a whole number below kMostNumbers, of digits only.
std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || rest != end || text.front() == '-' || number >= kMostNumbers)
    return std::nullopt;
  return number;
}

std::optional<PipelineWork> work_of(char letter) {
  for (const PipelineWork work : {PipelineWork::kForward, PipelineWork::kBackward,
                                  PipelineWork::kBackwardInput, PipelineWork::kBackwardWeight})
    if (work_letter(work) == letter) return work;
  return std::nullopt;
}

// Parses the task of a cell such as "F3.1", without its place.
std::optional<PipelineTask> task_of(std::string_view cell) {
  const size_t point = std::min(cell.find('.'), cell.size());
  const auto work = work_of(cell.front());
  const auto microbatch = number_of(cell.substr(1, point - 1));
  const auto chunk = point == cell.size() ? 0 : number_of(cell.substr(point + 1));
  if (!work || !microbatch || !chunk) return std::nullopt;
  return PipelineTask{.chunk = *chunk, .microbatch = *microbatch, .work = *work};
}

class TableParser {
 public:
  TableParser(std::string_view name, std::string_view text) : text_(text) {
    table_.name = std::string(name);
  }

  PipelineTable parse() {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      ++line_;
      parse_line(text_.substr(begin, end - begin));
      begin = end + 1;
    }
    if (table_.stages == 0)
      fail("{}: the schedule is empty, expected a line for each stage, such as F0 F1 . B0 B1",
           table_.name);
    return std::move(table_);
  }

 private:
  void parse_line(std::string_view line) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(kSpace) == std::string_view::npos) return;
    int64_t tick = 0;
    for (size_t at = line.find_first_not_of(kSpace, parse_label(line)); at < line.size();) {
      const size_t end = std::min(line.find_first_of(kSpace, at), line.size());
      parse_cell(line.substr(at, end - at), at, tick++);
      at = line.find_first_not_of(kSpace, end);
    }
    ++table_.stages;
  }

  // Returns the column after "stage 0:", or 0.
  size_t parse_label(std::string_view line) const {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return 0;
    const std::string expected = fmt::format("stage {}", table_.stages);
    const size_t begin = line.find_first_not_of(kSpace);
    const std::string_view label = line.substr(begin, colon - begin);
    if (label != expected)
      fail("{}: line {}, column {}: got '{}:', expected '{}:'; stages are in order from 0",
           table_.name, line_, begin + 1, label, expected);
    return colon + 1;
  }

  void parse_cell(std::string_view cell, size_t column, int64_t tick) {
    if (cell == kIdle) return;
    auto task = task_of(cell);
    if (!task)
      fail(
          "{}: line {}, column {} (stage {}, tick {}): got '{}', expected F (forward), B "
          "(backward), I (backward of input) or W (backward of weight) with the number of a "
          "microbatch, such as F3, or F3.1 for chunk 1; or . for an idle tick",
          table_.name, line_, column + 1, table_.stages, tick, cell);
    task->tick = tick;
    task->stage = table_.stages;
    table_.microbatches = std::max(table_.microbatches, task->microbatch + 1);
    table_.chunks = std::max(table_.chunks, task->chunk + 1);
    table_.tasks.push_back(*task);
  }

  std::string_view text_;
  PipelineTable table_;
  int64_t line_ = 0;
};

std::string heading(const PipelineTable& table) {
  return fmt::format("# {}: {} stage{}, {} microbatch{}{}", table.name, table.stages,
                     table.stages == 1 ? "" : "s", table.microbatches,
                     table.microbatches == 1 ? "" : "es",
                     table.chunks == 1 ? "" : fmt::format(", {} chunks per stage", table.chunks));
}

}  // namespace

std::string pipeline_text(const PipelineTable& table) {
  const size_t ticks = static_cast<size_t>(table.ticks());
  std::vector<std::vector<std::string>> rows(static_cast<size_t>(table.stages),
                                             std::vector<std::string>(ticks, std::string(kIdle)));
  size_t width = std::to_string(ticks).size();
  for (const PipelineTask& task : table.tasks) {
    std::string& cell = rows[static_cast<size_t>(task.stage)][static_cast<size_t>(task.tick)];
    cell = task_text(task);
    width = std::max(width, cell.size());
  }
  const size_t label = fmt::format("stage {}:", table.stages - 1).size();
  std::string text = fmt::format("{}\n{:<{}}", heading(table), "# tick", label);
  for (size_t tick = 0; tick < ticks; ++tick) text += fmt::format(" {:>{}}", tick, width);
  for (size_t stage = 0; stage < rows.size(); ++stage) {
    text += fmt::format("\n{:<{}}", fmt::format("stage {}:", stage), label);
    for (const std::string& cell : rows[stage]) text += fmt::format(" {:>{}}", cell, width);
  }
  return text + "\n";
}

PipelineTable parse_pipeline(std::string_view name, std::string_view text) {
  return TableParser(name, text).parse();
}

}  // namespace tessera
