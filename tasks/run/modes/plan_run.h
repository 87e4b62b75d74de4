// SPDX-License-Identifier: Apache-2.0
// --mode=plan: compiles the training step for any mesh, without its devices, and writes its plan:
// to standard output, to files, or as the changes since an earlier plan.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/io/json.h"
#include "tasks/planner/hardware/hardware.h"
#include "tasks/planner/plan.h"
#include "tasks/run/directory/graph_drawing.h"
#include "tasks/run/run_setting.h"

namespace tessera {

// Options of --mode=plan.
struct PlanOptions {
  std::optional<GraphStage> dump_graph;
  std::optional<Hardware> hardware;      // What the speed is predicted on.
  std::optional<Hardware> launch_costs;  // With launches, for the schedule of collectives.
  std::filesystem::path directory;       // Where the plan's files are written; empty: nowhere.
  std::filesystem::path compare_with;    // The earlier plan, or a directory with one; or empty.
  std::filesystem::path output;          // A file for the plan as JSON; or empty.
};

// The plan.json at this path, or in this directory. Error if it is no plan.
Json read_plan(const std::filesystem::path& path);

class PlanOutput {
 public:
  // Error if the earlier plan cannot be read, or a file would be replaced that is not a plan.
  explicit PlanOutput(const PlanOptions& options);

  // What is printed: the changes if an earlier plan is given, else the plan.
  std::string text(const Plan& plan) const;
  // Returns what is not written, and why; or "".
  std::string write_files(const Plan& plan) const;

 private:
  std::filesystem::path directory_, json_file_;  // Empty: not written.
  std::optional<Json> earlier_;
};

// One device is enough.
std::unique_ptr<BaseRun> plan_run(const RunContext& context, const PlanOptions& options);

}  // namespace tessera
