// SPDX-License-Identifier: Apache-2.0
// --mode=merge: a new run whose step 0 has the average of the weights of several checkpoints of
// another run (Izmailov et al., 2018, arXiv 1803.05407; Wortsman et al., 2022, arXiv 2203.05482).
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/storage/storage.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/modes/first_step.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/session/model_state.h"

namespace tessera {
namespace {

class MergeRun final : public BaseRun {
 public:
  MergeRun(const RunContext& context, const MergeOptions& options)
      : setting_(context.setting),
        from_(options.from),
        is_first_(context.processes.is_first()),
        console_(console_of(setting_, context.processes)) {
    const CheckpointStore store(from_ / "checkpoints");
    steps_ = steps_of(options, store);
    shares_ = shares_of(options.weights);
    for (const int64_t step : steps_) checkpoints_.push_back(store.open(step));
    first_step_.emplace(context, "merge into");
  }

  int run() override {
    const std::string merged =
        fmt::format("of steps {} of {} as step 0 of {}", fmt::join(steps_, ", "), from_.string(),
                    setting_.job_log_dir.string());
    if (setting_.dry_run) {
      console_.info("dry run: ready to save the average " + merged);
      return 0;
    }
    first_step_->save([&](Executor& executor, const ParameterTable& table) {
      average_weights(executor, table, checkpoints_, shares_);
    });
    if (is_first_) keep_tokenizer();
    console_.info("saved the average " + merged);
    return 0;
  }

 private:
  static std::vector<int64_t> steps_of(const MergeOptions& options, const CheckpointStore& store) {
    std::vector<int64_t> steps = options.steps;
    if (steps.empty()) {
      steps = store.steps();
      const int64_t last = options.last.value_or(0);
      if (std::ssize(steps) < last)
        fail("{} has checkpoints of {} steps, expected at least {} (--last)",
             store.directory().string(), steps.size(), last);
      steps.erase(steps.begin(), steps.end() - last);
    }
    if (std::set(steps.begin(), steps.end()).size() != steps.size())
      fail("a step is named twice among {}; expected different checkpoints", fmt::join(steps, ","));
    if (steps.size() < 2)
      fail("there is 1 checkpoint to average, expected at least 2 (--steps or --last)");
    return steps;
  }

  // They add up to 1.
  std::vector<double> shares_of(std::vector<double> weights) const {
    if (weights.empty()) weights.assign(steps_.size(), 1.0);
    if (weights.size() != steps_.size())
      fail("--weights has {} numbers for {} checkpoints, expected one for each", weights.size(),
           steps_.size());
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (!std::isfinite(sum) || sum <= 0.0)
      fail("the sum of --weights is {}, expected a positive number", plain_nan(sum));
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  void keep_tokenizer() const {
    const std::filesystem::path from =
        local_copy(from_, [](auto name) { return name == "tokenizer"; });
    if (const auto tokenizer = read_run_tokenizer(from))
      write_run_tokenizer(setting_.job_log_dir, *tokenizer);
  }

  RunSetting setting_;
  std::filesystem::path from_;
  bool is_first_;  // Whether this is process 0.
  Console console_;
  std::vector<int64_t> steps_;
  std::vector<double> shares_;
  std::vector<Checkpoint> checkpoints_;
  std::optional<FirstStep> first_step_;
};

}  // namespace

std::unique_ptr<BaseRun> merge_run(const RunContext& context, const MergeOptions& options) {
  return std::make_unique<MergeRun>(context, options);
}

}  // namespace tessera
