// SPDX-License-Identifier: Apache-2.0
#include "tests/support/mpirun.h"

#include <sys/wait.h>

#include <chrono>
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

Outcome mpirun(const std::filesystem::path& folder, const std::string& options,
               const std::string& program, const std::string& arguments) {
  using Clock = std::chrono::steady_clock;
  const TemporaryDirectory scratch;
  const Clock::time_point begin = Clock::now();
  const std::string command =
      fmt::format("cd '{}' && timeout -k 5 60 {} >'{}' 2>'{}' </dev/null", folder.string(),
                  mpirun_command(options, program, arguments), (scratch / "out").string(),
                  (scratch / "errors").string());
  const int status = std::system(command.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  constexpr int kTimedOut = 124;
  return {.exit_code = code == kTimedOut ? -1 : code,
          .out = read_bytes(scratch / "out"),
          .errors = read_bytes(scratch / "errors"),
          .seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
}

}  // namespace tessera
