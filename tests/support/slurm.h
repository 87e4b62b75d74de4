// SPDX-License-Identifier: Apache-2.0
// A temporary Slurm cluster of two nodes on this machine (tests/support/slurm_cluster.sh).
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>

#include "tests/support/mpirun.h"
#include "tests/support/temporary_directory.h"

namespace tessera {

// Why a cluster is not possible on this machine; empty if it is. Error if it should be possible but
// fails to start.
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
  std::string cluster_;        // Its directory.
  int commands_ = 0;
};

}  // namespace tessera
