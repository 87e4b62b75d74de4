// SPDX-License-Identifier: Apache-2.0
#include "tests/support/mpirun.h"

#include <cstdlib>

#include <fmt/core.h>

#include "tests/support/temporary_directory.h"

namespace tessera {

std::string why_no_mpirun() {
  if (std::system("command -v mpirun >/dev/null 2>&1") != 0) return "mpirun is not installed";
  const std::filesystem::path plugin =
      std::filesystem::path(TESSERA_BINARY_DIR) / "lib/tessera/transports/mpi.so";
  if (!std::filesystem::exists(plugin)) return "the build has no MPI transport (libopenmpi-dev)";
  return "";
}

std::string mpirun_command(const std::string& options, const std::string& program,
                           const std::string& arguments) {
  return fmt::format(
      "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
      "--bind-to none {} '{}/bin/{}' {}",
      options, TESSERA_BINARY_DIR, program, arguments);
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

}  // namespace tessera
