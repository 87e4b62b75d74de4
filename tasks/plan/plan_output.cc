// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan/plan_output.h"

#include <fmt/format.h>

#include "core/io/file.h"
#include "tasks/plan/comparison.h"
#include "tasks/run_directory/run_config.h"

namespace tessera {

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
  std::filesystem::create_directories(directory_);
  write_plan_files(directory_, plan);
  return "";
}

}  // namespace tessera
