// SPDX-License-Identifier: Apache-2.0
// Runs programs of this build as several processes: under mpirun, on one or two hosts, or in a
// temporary Slurm cluster of two nodes on this machine (tests/support/slurm_cluster.sh).
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {

// Why mpirun cannot be used here ("mpirun is not installed"); empty if it can. Tests that need it
// return skip_test(reason).
std::string why_no_mpirun();

// Why mpirun on two hosts (tests/support/two_hosts.sh) cannot be used here; empty if it can.
std::string why_no_two_hosts();

// `mpirun <options> bin/<program> <arguments>`. There may be more processes than processors.
std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments);

// runexp as two processes with different arguments, by a script in the folder. (`mpirun A : B` ends
// with a segmentation fault in Open MPI 5.0.7, which Debian 13 has.)
std::string mpirun_two_commands(const std::filesystem::path& folder, const std::string& first,
                                const std::string& second);

// Whether mpirun, when it ends a job, leaves the processes time to report what they waited for.
// Open MPI 5 may kill them at once.
bool mpirun_waits_after_sigterm();

// A command on two hosts, with options of two_hosts.sh.
std::string two_hosts_command(const std::string& options, const std::string& command);

// Why a Slurm cluster is not possible on this machine; empty if it is. Error if it should be
// possible but fails to start.
std::string why_no_slurm();

class SlurmCluster {
 public:
  SlurmCluster();
  ~SlurmCluster();
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  // The command line that runs a shell command in `folder` on a host, left or right, for Background
  // and shell().
  std::string on(const std::string& host, const std::filesystem::path& folder,
                 const std::string& command);
  // Runs the command on that host.
  Outcome run(const std::string& host, const std::filesystem::path& folder,
              const std::string& command);
  // The logs of the cluster's programs.
  std::string logs() const;

 private:
  TemporaryDirectory folder_;
  std::FILE* pipe_ = nullptr;  // The cluster ends when this is closed or this process ends.
  std::string cluster_;        // The cluster's directory.
  int commands_ = 0;
};

}  // namespace tessera
