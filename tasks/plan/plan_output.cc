// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/plan_output.h"

#include "core/base/error.h"
#include "core/io/file.h"
#include "tasks/plan/comparison.h"
#include "tasks/run_directory/run_config.h"

namespace tessera {

PlanOutput::PlanOutput(const RunOptions& options)
    : directory_(options.plan_directory), json_file_(options.output) {
  if (!directory_.empty() && run_has_begun(directory_))
    fail(
        "{} has a run, whose plan.json and plan.txt a new plan would replace; give another "
        "--job_log_dir, or --output=FILE",
        directory_.string());
  if (!options.compare_plan.empty()) earlier_ = read_plan(options.compare_plan);
}

std::string PlanOutput::text(const Plan& plan) const {
  return earlier_ ? plan_comparison(*earlier_, parse_json(plan_json(plan), "the plan"))
                  : plan_text(plan);
}

void PlanOutput::write_files(const Plan& plan) const {
  if (!directory_.empty()) {
    std::filesystem::create_directories(directory_);
    write_plan_files(directory_, plan);
  }
  if (!json_file_.empty()) write_file_atomically(json_file_, plan_json(plan) + "\n");
}

}  // namespace tessera
