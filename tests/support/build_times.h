// SPDX-License-Identifier: Apache-2.0
// Compile times of the files of a build, from ninja's log, and files that take twice as long as in
// a committed table. Machines and loads differ, so a file is compared with the files compiled at
// about the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CompileStep {
  std::string object;   // Below CMakeFiles/.
  double seconds = 0;   // Wall time; ninja records no other.
  double began_at = 0;  // Seconds since a common start for all builds in one folder.
  int64_t lines = 0;    // Lines of the sources; 0 if unknown.
};

// The last compilation of each object, slowest first; `lines` is not set.
std::vector<CompileStep> compile_steps(std::string_view ninja_log);

struct CompileBudget {
  double seconds = 0;
  int64_t lines = 0;
};

// One "seconds lines object" per line; # starts a comment.
std::map<std::string, CompileBudget> read_budgets(std::string_view text);
std::string budget_text(const std::vector<CompileStep>& steps);

struct BudgetReport {
  std::string skipped;             // Why nothing was compared; empty if something was.
  std::vector<std::string> grown;  // One sentence per object that takes twice as long.
  int64_t compared = 0;
};

// The expected time grows in proportion to the source's lines.
BudgetReport compare_with_budgets(const std::vector<CompileStep>& steps,
                                  const std::map<std::string, CompileBudget>& budgets);

}  // namespace tessera
