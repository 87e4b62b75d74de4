// SPDX-License-Identifier: Apache-2.0
// A small run that ends only when it is told to, in a folder of its own: what the tests of faults
// and of launchers start, strike and look at.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tessera {

struct EndlessRun {
  int timeout_seconds = 30;  // Of a collective.
  int save_interval = 5;
  bool evaluates = false;  // At each step, so that steps are slow; losses are the same.
};

// The arguments of runexp. The run is in the folder `run`; write_text has written its text.
std::string arguments_of(const EndlessRun& run);
void write_text(const std::filesystem::path& folder);

// The process of this rank among those that run in `folder`, by the variable that its launcher
// sets.
std::optional<int> process_of(const std::filesystem::path& folder, int rank,
                              const std::string& variable = "OMPI_COMM_WORLD_RANK");

int64_t last_step(const std::filesystem::path& folder);   // In its log; 0 if there is none.
int64_t last_saved(const std::filesystem::path& folder);  // -1 if there is none.

// The losses of the same run on two processes that were left alone, of at least `steps` steps.
std::map<std::string, std::string> losses_left_alone(const EndlessRun& run, int64_t steps);
// Fails unless the run in `folder` has had these losses, to the last bit.
void require_losses(const std::filesystem::path& folder,
                    const std::map<std::string, std::string>& expected);

}  // namespace tessera
