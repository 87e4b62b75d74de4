// SPDX-License-Identifier: Apache-2.0
// Programs of this build run by a test as several processes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string errors;
  double seconds = 0;
};

// Why nothing can be run by mpirun here ("mpirun is not installed"); empty if it can. Tests that
// need it WARN so and return.
std::string why_no_mpirun();

// `mpirun <options> bin/<program> <arguments>` in `folder`, as a shell reads it. More processes
// than processors are fine. Killed after a minute: -1.
Outcome mpirun(const std::filesystem::path& folder, const std::string& options,
               const std::string& program, const std::string& arguments);

// The shell command that mpirun() runs, without its redirections.
std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments);

}  // namespace tessera
