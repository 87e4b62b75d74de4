// SPDX-License-Identifier: Apache-2.0
#include "tasks/eval/eval_writer.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/io/json_line.h"
#include "tasks/eval/shared_lines.h"
#include "tasks/logging/jsonl_writer.h"

namespace tessera {
namespace {

constexpr std::string_view kEvalOutPrefix = "eval/";

}  // namespace

EvalWriter::EvalWriter(std::filesystem::path run_directory)
    : directory_(std::move(run_directory) / "eval_out") {}

void EvalWriter::add(int64_t step, const std::map<std::string, double>& metrics) {
  std::map<std::string, JsonLine> lines;  // By file: the first part of the name.
  for (const auto& [full, value] : metrics) {
    CHECK(full.starts_with(kEvalOutPrefix));
    const std::string name = full.substr(kEvalOutPrefix.size());
    const size_t first = name.find('/'), last = name.rfind('/');
    CHECK(first != std::string::npos, "eval metric '{}'", full);
    const auto [line, is_new] = lines.try_emplace(name.substr(0, first));
    if (is_new) line->second.add("step", step);
    line->second.add(name.substr(first + 1), value);
    if (!std::isfinite(value)) continue;
    const std::string split = name.substr(0, last);
    std::unique_ptr<EventFile>& events = events_[split];
    if (!events) events = std::make_unique<EventFile>(directory_ / "summaries" / split, 0);
    events->scalar(step, name.substr(last + 1), value);
  }
  for (const auto& [file, line] : lines)
    append_shared_line(directory_ / (file + ".jsonl"), line.text());
  for (const auto& [split, events] : events_) events->flush();
}

std::set<int64_t> EvalWriter::steps(const std::string& dataset) const {
  std::set<int64_t> steps;
  const std::filesystem::path file = directory_ / (dataset + ".jsonl");
  if (!std::filesystem::is_regular_file(file)) return steps;
  const std::string text = read_file(file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // A line that is not whole does not count.
    if (const auto step = step_of_line(std::string_view(text).substr(begin, end - begin)))
      steps.insert(*step);
    begin = end + 1;
  }
  return steps;
}

}  // namespace tessera
