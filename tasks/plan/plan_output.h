// SPDX-License-Identifier: Apache-2.0
// Where --mode=plan writes a plan: standard output, files, and the changes since an earlier plan.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/io/json.h"
#include "tasks/config/run_options.h"
#include "tasks/plan/plan.h"

namespace tessera {

class PlanOutput {
 public:
  // Error if the earlier plan cannot be read, or a file would be replaced that is not a plan.
  explicit PlanOutput(const RunOptions& options);

  // What is printed: the changes if an earlier plan is given, else the plan.
  std::string text(const Plan& plan) const;
  // Returns what is not written, and why; or "".
  std::string write_files(const Plan& plan) const;

 private:
  std::filesystem::path directory_, json_file_;  // Empty: not written.
  std::optional<Json> earlier_;
};

}  // namespace tessera
