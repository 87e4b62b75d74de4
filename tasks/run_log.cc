// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_log.h"

#include <fstream>

#include "core/base/error.h"
#include "core/base/json_line.h"

namespace tessera {

struct RunLog::Impl {
  std::ofstream lines;
  void write(const JsonLine& line) {
    lines << line.text() << std::endl;
    if (!lines) fail("cannot write metrics.jsonl; is the disk full?");
  }
};

RunLog::RunLog(const std::filesystem::path& run_directory, int64_t)
    : impl_(std::make_unique<Impl>()) {
  impl_->lines.open(run_directory / "metrics.jsonl", std::ios::app);
}
RunLog::~RunLog() = default;

void RunLog::train(const TrainLine& line) {
  JsonLine json;
  json.add("step", line.step).add("loss", line.loss);
  for (const auto& [name, value] : line.metrics)
    if (name != "loss") json.add(name, value);
  json.add("learning_rate", line.learning_rate)
      .add("grad_norm", line.grad_norm)
      .add("tokens", line.tokens)
      .add("tokens_per_sec", line.tokens_per_sec)
      .add("step_time", line.step_time);
  if (line.mfu >= 0.0) json.add("mfu", line.mfu);
  json.add("input_wait", line.input_wait).add("skipped", line.skipped);
  for (const auto& [name, value] : line.parameter_norms) json.add(name, value);
  impl_->write(json);
}

void RunLog::summarise(const TrainLine&) {}

void RunLog::eval(int64_t step, const std::map<std::string, double>& metrics) {
  JsonLine json;
  json.add("step", step);
  for (const auto& [name, value] : metrics) json.add(name, value);
  impl_->write(json);
}

void RunLog::event(std::string_view name, int64_t step,
                   const std::map<std::string, double>& details) {
  JsonLine json;
  json.add("event", name).add("step", step);
  for (const auto& [key, value] : details) json.add(key, value);
  impl_->write(json);
}

}  // namespace tessera
