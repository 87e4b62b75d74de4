// SPDX-License-Identifier: Apache-2.0
// A small run in its own folder that continues until it is stopped, for tests of faults and
// launchers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tessera {

struct EndlessRun {
  int timeout_seconds = 30;  // Timeout of a collective.
  int save_interval = 5;
  bool evaluates = false;  // Evaluates after each step to slow down the run; losses are the same.
};

// The arguments of runexp. The run's directory is `run`; write_text must have written its text.
std::string arguments_of(const EndlessRun& run);
void write_text(const std::filesystem::path& folder);

// The process with this rank among those that run in `folder`. The rank is read from the
// environment variable that the launcher sets.
std::optional<int> process_of(const std::filesystem::path& folder, int rank,
                              const std::string& variable = "OMPI_COMM_WORLD_RANK");

// Sends a signal to a process of a run. A process that SIGKILL ends is suspended first, until the
// others wait for it: their report then does not depend on what they were computing.
void send_signal(int process, int signal);

// Returns the last step in the run's log; 0 if it has no line.
int64_t last_step(const std::filesystem::path& folder);
int64_t last_saved(const std::filesystem::path& folder);  // -1 without a checkpoint.

// The losses of the same run on two processes without faults, for at least `steps` steps.
std::map<std::string, std::string> losses_left_alone(const EndlessRun& run, int64_t steps);
// Fails unless the losses of the run in `folder` equal these bit for bit.
void require_losses(const std::filesystem::path& folder,
                    const std::map<std::string, std::string>& expected);

}  // namespace tessera
