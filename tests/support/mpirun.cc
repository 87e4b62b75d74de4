// SPDX-License-Identifier: Apache-2.0
#include "tests/support/mpirun.h"

#include <chrono>
#include <cstdlib>

#include <fmt/core.h>
#include <fmt/format.h>

#include "core/base/error.h"
#include "tests/support/child.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

std::string cluster_command(const std::string& command) {
  return fmt::format("'{}/tests/support/slurm_cluster.sh' {}", TESSERA_SOURCE_DIR, command);
}

constexpr const char* kMpirun =
    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
    "--bind-to none";

constexpr int kCannotBeSetUp = 77;  // Exit code of slurm_cluster.sh.

// Starts a cluster, stops it at once, and returns the result.
Outcome try_cluster() {
  const TemporaryDirectory folder;
  return shell(folder.path(), cluster_command("srun --nodes=2 --mpi=pmix /bin/true"),
               std::chrono::seconds(120));
}

}  // namespace

std::string why_no_mpirun() {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) return "mpirun is not installed";
  const std::filesystem::path plugin =
      std::filesystem::path(TESSERA_BINARY_DIR) / "lib/tessera/transports/mpi.so";
  if (!std::filesystem::exists(plugin)) return "the build has no MPI transport (libopenmpi-dev)";
  return "";
}

std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments) {
  return fmt::format("{} {} '{}/bin/{}' {}", kMpirun, options, TESSERA_BINARY_DIR, program,
                     arguments);
}

std::string mpirun_two_commands(const std::filesystem::path& folder, const std::string& first,
                                const std::string& second) {
  const std::string runexp = fmt::format("exec '{}/bin/runexp'", TESSERA_BINARY_DIR);
  write_bytes(folder / "by_rank.sh",
              fmt::format("if test $OMPI_COMM_WORLD_RANK = 0\nthen {0} {1}\nelse {0} {2}\nfi\n",
                          runexp, first, second));
  return fmt::format("{} -n 2 sh '{}'", kMpirun, (folder / "by_rank.sh").string());
}

bool mpirun_waits_after_sigterm() {
  const TemporaryDirectory folder;
  return shell(folder.path(), "mpirun --version").out.find("(Open MPI) 4.") != std::string::npos;
}

std::string two_hosts_command(const std::string& options, const std::string& command) {
  return fmt::format("'{}/tests/support/two_hosts.sh' {} {}", TESSERA_SOURCE_DIR, options, command);
}

std::string why_no_two_hosts() {
  const std::string reason = why_no_mpirun();
  if (!reason.empty()) return reason;
  const TemporaryDirectory folder;
  const Outcome outcome = shell(folder.path(), two_hosts_command("", "true"));
  return outcome.exit_code == 0 ? "" : outcome.errors.substr(0, outcome.errors.find('\n'));
}

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
