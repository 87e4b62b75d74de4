// SPDX-License-Identifier: Apache-2.0
// Where --mode=plan writes a plan: standard output, files, and the changes since an earlier plan.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/io/json.h"
#include "tasks/hardware/hardware.h"
#include "tasks/plan/plan.h"
#include "tasks/run_directory/graph_drawing.h"

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

}  // namespace tessera
