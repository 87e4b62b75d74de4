// SPDX-License-Identifier: Apache-2.0
// --mode=plan: compiles the training step for any mesh, and writes its plan.
#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/file.h"
#include "tasks/run/directory/run_config.h"
#include "tasks/run/modes/modes.h"
#include "tasks/run/train/train_session.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class PlanRun final : public BaseRun {
 public:
  PlanRun(const RunContext& context, const PlanOptions& options)
      : options_(options),
        writes_(context.processes.is_first() && !context.setting.dry_run),
        session_(context.config,
                 {.run_directory = context.setting.job_log_dir,
                  .input_directory = context.setting.input_directory,
                  .devices = context.setting.devices,
                  .allocates = false,
                  .on_stage = graph_dumper(options.dump_graph, context.setting.job_log_dir,
                                           context.processes),
                  .launch_costs = options.launch_costs},
                 context.devices, context.processes),
        console_(console_of(context.setting, context.processes)),
        output_(options) {
    require_metrics(session_);
  }

  int run() override {
    warn_of_layouts(session_, console_);
    const Plan plan = session_.plan(options_.hardware);
    console_.info(output_.text(plan));
    if (!writes_) return 0;
    if (const std::string note = output_.write_files(plan); !note.empty())
      console_.info("note: " + note);
    return 0;
  }

 private:
  PlanOptions options_;
  bool writes_;
  Session session_;
  Console console_;
  PlanOutput output_;
};

}  // namespace

Json read_plan(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "plan.json" : path;
  if (!fs::exists(file))
    fail(
        "--compare_plan={}: {} does not exist; give the plan.json that a run or --mode=plan "
        "wrote{}",
        path.string(), file.string(), did_you_mean_run(path));
  Json plan = parse_json(read_file(file), file.string());
  for (const char* member : {"parameters", "peak_bytes", "collectives"})
    if (!plan.is_object() || plan.find(member) == nullptr)
      fail("--compare_plan={}: {} is no plan: it has no member '{}'", path.string(), file.string(),
           member);
  return plan;
}

PlanOutput::PlanOutput(const PlanOptions& options)
    : directory_(options.directory), json_file_(options.output) {
  if (!json_file_.empty())
    require_same_kind(json_file_, "{\"parameters\": ", "a plan of --mode=plan");
  if (!options.compare_with.empty()) earlier_ = read_plan(options.compare_with);
}

std::string PlanOutput::text(const Plan& plan) const {
  return earlier_ ? plan_comparison(*earlier_, parse_json(plan_json(plan), "the plan"))
                  : plan_text(plan);
}

std::string PlanOutput::write_files(const Plan& plan) const {
  if (!json_file_.empty()) write_file_atomically(json_file_, plan_json(plan) + "\n");
  if (directory_.empty()) return "";
  if (run_has_begun(directory_))
    return fmt::format(
        "{} has a run, and keeps the plan.txt and plan.json of that run; another --job_log_dir "
        "gets files of this plan",
        directory_.string());
  fs::create_directories(directory_);
  write_plan_files(directory_, plan);
  return "";
}

std::unique_ptr<BaseRun> plan_run(const RunContext& context, const PlanOptions& options) {
  return std::make_unique<PlanRun>(context, options);
}

}  // namespace tessera
