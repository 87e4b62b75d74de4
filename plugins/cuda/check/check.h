// SPDX-License-Identifier: Apache-2.0
// Runs the items of gpu_check one after the other, each in a process of its own, and continues
// after every failure.
#pragma once

#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "plugins/cuda/check/items.h"
#include "plugins/cuda/check/report.h"

namespace tessera::cuda {

struct CheckRun {
  CheckOptions options;
  std::vector<int> stages;      // Empty: all.
  std::regex filter{""};        // Items with this in their name.
  double budget_seconds = 0.0;  // After that no item begins; 0: no limit.
  bool again = false;           // Items that failed or were not tested run again.
};

// Error if there is no driver. Returns the exit code: 0 if nothing failed. Writes report.json after
// each item, at the end report.txt and the archive of both with the logs.
int check(const CheckRun& run, std::ostream& out);

// In the process of an item: runs it and writes what it found to `file`. Returns the exit code.
int run_item(const CheckOptions& options, const std::string& name,
             const std::filesystem::path& file);

}  // namespace tessera::cuda
