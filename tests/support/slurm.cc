// SPDX-License-Identifier: Apache-2.0
#include "tests/support/slurm.h"

#include <chrono>

#include <fmt/format.h>

#include "core/base/error.h"
#include "tests/support/child.h"

namespace tessera {
namespace {

std::string cluster_command(const std::string& command) {
  return fmt::format("'{}/tests/support/slurm_cluster.sh' {}", TESSERA_SOURCE_DIR, command);
}

constexpr int kCannotBeSetUp = 77;  // Exit code of slurm_cluster.sh.

// Starts a cluster, stops it at once, and returns the result.
Outcome try_cluster() {
  const TemporaryDirectory folder;
  return shell(folder.path(), cluster_command("srun --nodes=2 --mpi=pmix /bin/true"),
               std::chrono::seconds(120));
}

}  // namespace

std::string why_no_slurm() {
  if (const std::string reason = why_no_two_hosts(); !reason.empty()) return reason;
  static const Outcome outcome = try_cluster();
  if (outcome.exit_code == kCannotBeSetUp) return outcome.errors;
  CHECK(outcome.exit_code == 0, "a Slurm cluster does not work (exit code {}): {}{}",
        outcome.exit_code, outcome.out, outcome.errors);
  return "";
}

SlurmCluster::SlurmCluster() {
  const std::filesystem::path told = folder_ / "told";
  const std::string wait_for_us =
      fmt::format("sh -c 'echo \"$CLUSTER\" >\"{0}.new\"; mv \"{0}.new\" \"{0}\"; cat >/dev/null'",
                  told.string());
  const std::string command =
      fmt::format("{} >'{}' 2>&1", cluster_command(wait_for_us), (folder_ / "output").string());
  pipe_ = ::popen(command.c_str(), "we");
  CHECK(pipe_ != nullptr);
  if (!comes_true([&] { return std::filesystem::exists(told); })) {
    ::pclose(pipe_);  // The destructor will not run.
    fail("no cluster: {}", read_bytes(folder_ / "output"));
  }
  cluster_ = read_bytes(told);
  cluster_.pop_back();
}

SlurmCluster::~SlurmCluster() { ::pclose(pipe_); }

std::string SlurmCluster::on(const std::string& host, const std::filesystem::path& folder,
                             const std::string& command) {
  const std::filesystem::path file = folder_ / fmt::format("command_{}.sh", ++commands_);
  write_bytes(file, fmt::format("cd '{}' && {}\n", folder.string(), command));
  return fmt::format("'{}/on' {} sh '{}'", cluster_, host, file.string());
}

Outcome SlurmCluster::run(const std::string& host, const std::filesystem::path& folder,
                          const std::string& command) {
  return shell(folder, on(host, folder, command));
}

std::string SlurmCluster::logs() const {
  std::string all;
  for (const char* name : {"slurmctld.log", "left.log", "right.log"})
    all += fmt::format("{}\n{}\n", name, read_bytes(std::filesystem::path(cluster_) / name));
  return all;
}

}  // namespace tessera
