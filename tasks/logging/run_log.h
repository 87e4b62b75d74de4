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

namespace tessera {

struct DecodedExample;

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
  // Texts that the model wrote after `step` steps: lines of samples.jsonl, and pages of
  // TensorBoard's text tab.
  void samples(int64_t step, const std::vector<DecodedExample>& examples);
  // A page of TensorBoard's text tab.
  void text(std::string_view name, std::string_view markdown);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
