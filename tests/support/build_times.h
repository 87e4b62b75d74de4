// SPDX-License-Identifier: Apache-2.0
// How long each file of a build took to compile, by ninja's log, and whether one of them takes
// twice as long as a committed table says. Machines and loads differ: only the ratio of a file to
// the files that were compiled at about the same time counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CompileStep {
  std::string object;   // Below CMakeFiles/.
  double seconds = 0;   // Of a clock on the wall, which is all that ninja keeps.
  double began_at = 0;  // In seconds, the same for all builds in one folder.
  int64_t lines = 0;    // Of the sources; 0 if they are not known.
};

// The last time that each object was compiled, slowest first; no lines yet.
std::vector<CompileStep> compile_steps(std::string_view ninja_log);

struct CompileBudget {
  double seconds = 0;
  int64_t lines = 0;
};

// "seconds lines object" a line, and # for comments.
std::map<std::string, CompileBudget> read_budgets(std::string_view text);
std::string budget_text(const std::vector<CompileStep>& steps);

struct BudgetReport {
  std::string skipped;             // Why nothing was compared; empty if it was.
  std::vector<std::string> grown;  // One sentence for each object that takes twice as long.
  int64_t compared = 0;
};

// A source that has grown may take longer in proportion.
BudgetReport compare_with_budgets(const std::vector<CompileStep>& steps,
                                  const std::map<std::string, CompileBudget>& budgets);

}  // namespace tessera
