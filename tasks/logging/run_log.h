// SPDX-License-Identifier: Apache-2.0
// What a run records for programs to read: lines of metrics.jsonl and TensorBoard summaries, under
// the names that docs/formats.md gives. Not the console.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "inputs/base_input.h"
#include "tasks/logging/console.h"

namespace tessera {

// One training step, as its line says it.
struct TrainLine {
  int64_t step = 0;  // Steps done, this one included.
  double loss = 0.0;
  double learning_rate = 0.0;
  double grad_norm = 0.0;
  int64_t tokens = 0;  // Since step 0.
  double tokens_per_sec = 0.0;
  double step_time = 0.0;   // Seconds.
  double mfu = 0.0;         // Negative: unknown, and left out.
  double input_wait = 0.0;  // Seconds of step_time.
  int64_t skipped = 0;
  std::map<std::string, double> metrics;  // log_pplx, accuracy, …
  std::map<std::string, double> parameter_norms;
};

class RunLog {
 public:
  RunLog();  // Records nothing: of a process whose log another one writes.
  // Appends to the directory's files; lines after `restored_step` are cut first.
  RunLog(const std::filesystem::path& run_directory, int64_t restored_step);
  ~RunLog();

  void train(const TrainLine& line);
  void summarise(const TrainLine& line);
  // "eval/<dataset>/<metric>" by name, after `step` steps.
  void eval(int64_t step, const std::map<std::string, double>& metrics);
  // start, restore, save, skip, broken_documents, preempt, done, …; with what else there is to say.
  void event(std::string_view name, int64_t step,
             const std::map<std::string, double>& details = {});
  // failed, console_lost: with the reason.
  void event(std::string_view name, int64_t step, std::string_view reason);
  // Texts that the model generated after `step` steps: lines of samples.jsonl, and pages of
  // TensorBoard's text tab by name.
  void samples(int64_t step, const std::vector<std::string>& lines,
               const std::map<std::string, std::string>& pages);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Says that documents were left out because they could not be read: nothing is dropped in silence.

class CorruptRecordsReport {
 public:
  // What a resumed run was told of before.
  void restore(const InputState& state) { reported_ = corrupt_records(state).count; }
  // An event and a line, if there are more than were told of.
  void report(const InputState& state, int64_t step, RunLog& log, Console& console);

 private:
  int64_t reported_ = 0;
};

}  // namespace tessera
