// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/modes/first_step.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/compile/computation.h"
#include "core/runtime/checkpoint/checkpoint_store.h"
#include "inputs/checked_input.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/session/model_state.h"
#include "tasks/run/train/loop_state.h"
#include "tasks/task/step_sizes.h"

namespace tessera {

// The weights and learner state of a training run that reads no batch.
class FirstStep::TrainedModel final : public ModelSession {
 public:
  explicit TrainedModel(const RunContext& context)
      : ModelSession(context.config, Purpose::kRunning, context.devices, context.setting.devices,
                     context.processes) {
    const std::unique_ptr<BaseInput> input = make_input(context.config.input);
    const StepSizes sizes(train().phases, *input);
    const Graph graph =
        task_->train_graph({mesh_, rules_, global_specification(*input, sizes.main())});
    computation_ = Computation(graph).record();
    add_program(graph);
    executor_.allocate();
  }
  const std::string& computation() const { return computation_; }

 private:
  std::string computation_;
};

FirstStep::FirstStep(const RunContext& context, std::string_view verb)
    : setting_(context.setting), processes_(context.processes) {
  lock_ = lock_run(setting_, processes_);
  if (processes_.is_first()) check_not_begun(verb);
  hparams_toml_ = prepare_run(context.config, setting_, processes_);
  guard_ = guard_run(setting_, lock_.get());
  session_ = std::make_unique<TrainedModel>(context);
}

FirstStep::~FirstStep() = default;

void FirstStep::check_not_begun(std::string_view verb) const {
  const CheckpointStore store(setting_.job_log_dir / "checkpoints");
  const std::vector<int64_t> steps = store.steps();
  const bool has_steps = std::ranges::any_of(steps, [](int64_t step) { return step > 0; });
  if (has_steps || run_has_begun(setting_.job_log_dir))
    fail(
        "{} contains a run that has started{}; {} a new --job_log_dir, or set that run aside with "
        "--restart",
        setting_.job_log_dir.string(),
        has_steps ? fmt::format(" (step {})", steps.back()) : std::string(), verb);
}

void FirstStep::save(const std::function<void(Executor&, const ParameterTable&)>& fill) {
  Executor& executor = session_->executor();
  const ParameterTable& table = session_->task().model().parameters();
  clear_state(executor);
  fill(executor, table);
  start_averages(executor, table);
  CheckpointInfo info{
      .step = 0, .seed = static_cast<uint64_t>(session_->train().seed), .hparams = hparams_toml_};
  put_loop_state({.mesh = session_->mesh().text(),
                  .code = setting_.code,
                  .computation = session_->computation()},
                 &info);
  guard_->expect_in_place();
  CheckpointStore(guard_->held() / "checkpoints")
      .add(info, checkpoint_arrays(executor), processes_);
}

}  // namespace tessera
