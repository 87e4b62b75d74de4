// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/model_session.h"

#include <utility>

#include "core/base/error.h"
#include "core/io/file.h"
#include "core/runtime/executor/device_kinds.h"
#include "tasks/run/session/step_checks.h"
#include "tasks/task/config/mesh_config.h"

namespace tessera {
namespace {

std::unique_ptr<BaseTask> make_task(const Template<BaseTask>& task_tpl) {
  const ErrorContext where("task");
  return task_tpl.instantiate();
}

Mesh mesh_of(const MeshConfig& config, ModelSession::Purpose purpose, int64_t devices_per_process,
             const ProcessGroup& processes) {
  if (purpose == ModelSession::Purpose::kPlanning)
    return planned_mesh(config, devices_per_process * processes.size());
  return make_mesh(config, {devices_per_process, processes.size()});
}

}  // namespace

Console console_of(const RunSetting& setting, const ProcessGroup& processes) {
  const bool prints = setting.verbosity != Verbosity::kSilent && processes.is_first();
  Console console(prints ? Console::detect() : Console::Mode::kSilent);
  console.rename(setting.job_log_dir.string(), setting.name());
  return console;
}

ModelSession::ModelSession(const ExperimentConfig& config, Purpose purpose,
                           const std::vector<Device*>& devices, int64_t devices_per_process,
                           ProcessGroup& processes, const std::filesystem::path& run_directory)
    : processes_(processes),
      device_(*devices.at(0)),
      mesh_(mesh_of(config.mesh, purpose, devices_per_process, processes)),
      rules_(make_rules(config.rules)),
      task_(make_task(config.task)),
      pipeline_(make_pipeline()),
      executor_(make_executor(purpose, devices)),
      stall_probe_(add_stall_probe()) {
  check_values(resolved(to_tree(config)), "the configuration");
  if (train().numerics != Numerics::kStandard && !find_device_kind(device_.kind()).has_all_numerics)
    fail("task.train.numerics: {} is for CPUs, got a device of kind {}; use --device=cpu",
         enum_name(train().numerics), device_.kind());
  for (Device* device : devices)
    if (!train().deterministic) device->permit_nondeterminism();
  if (purpose == Purpose::kRunning) {
    CHECK(static_cast<int64_t>(devices.size()) == devices_per_process);
    remark_ = check_hosts(mesh_, hosts_of_devices(processes, devices_per_process));
  }
  if (run_directory.empty() || device_.share_choices("").empty()) return;
  const std::filesystem::path file = run_directory / kKernelChoicesFile;
  const bool reads = processes.is_first() && std::filesystem::exists(file);
  const std::string text = processes.broadcast(reads ? read_file(file) : "", "kernel choices");
  const ErrorPrefix prefix(file.string());
  device_.share_choices(text);
}

std::optional<ModelPipeline> ModelSession::make_pipeline() {
  check_rules(rules_, mesh_);
  std::optional<ModelPipeline> pipeline =
      model_pipeline(train(), task_->model().parameters(), rules_, mesh_);
  if (pipeline) mesh_ = with_pieces(std::move(mesh_), *pipeline);
  return pipeline;
}

Executor ModelSession::make_executor(Purpose purpose, const std::vector<Device*>& devices) {
  if (purpose == Purpose::kPlanning) return Executor::for_planning(*devices.at(0));
  const std::chrono::seconds timeout(train().collective_timeout_seconds);
  processes_.set_timeout(timeout);
  if (mesh_.num_devices() == 1) return Executor(*devices.at(0));
  communicator_ = find_device_kind(devices.at(0)->kind())
                      .make_communicator({.local_devices = std::ssize(devices),
                                          .transport = processes_.transport(),
                                          .timeout = timeout,
                                          .deterministic = train().deterministic});
  return Executor(devices, *communicator_);
}

StallProbes::Registration ModelSession::add_stall_probe() {
  if (!communicator_) return {};
  return processes_.stall_probes().add(
      [communicator = communicator_.get()](auto least) { return communicator->stalled(least); });
}

int ModelSession::add_program(Graph graph, CompileOptions options) {
  options.mesh = mesh_;
  if (pipeline_) options.pipeline = table_for(*pipeline_, graph);
  options.remat = parse_remat_policy(train().remat_policy);
  options.numerics = train().numerics;
  const auto add = [&] { return executor_.add_program(std::move(graph), options); };
  if (processes_.size() == 1 || !communicator_ || device_.share_choices("").empty()) return add();
  // The first process of each stage makes its trials before those of later stages, then the others
  // find no more to try.
  std::vector<std::string> stages;
  if (mesh_.has(kStageAxis)) stages.emplace_back(kStageAxis);
  std::vector<int64_t> turns = mesh_.group(0, stages);
  turns.push_back(communicator_->first_device());
  std::optional<int> program;
  for (const int64_t device : turns) {
    const std::string known = device_.share_choices("");
    if (!program && device / communicator_->local_devices() == processes_.rank()) program = add();
    const std::string own = device_.share_choices("");
    for (const std::string& chosen :
         processes_.all_gather(own == known ? "" : own, "kernel choices"))
      device_.share_choices(chosen);
  }
  return *program;
}

int64_t ModelSession::batch_parts() const {
  const Type rows =
      apply_rules(rules_.activations, mesh_, make_type(DType::kI32, {{"batch", 0, {}}}));
  return mesh_.size_along(rows.axes[0].split);
}

Weights ModelSession::eval_weights() const {
  return task_->learner().averages() && train().eval_on_ema ? Weights::kAveraged
                                                            : Weights::kTrained;
}

int64_t ModelSession::bytes_sent() const {
  int64_t bytes = 0;
  for (int64_t i = 0; communicator_ && i < communicator_->local_devices(); ++i)
    bytes += communicator_->bytes_sent(communicator_->first_device() + i);
  return bytes;
}

}  // namespace tessera
