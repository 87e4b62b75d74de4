// SPDX-License-Identifier: Apache-2.0
#include "plugins/launch.h"

#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/error.h"
#include "core/hparams/convert.h"
#include "plugins/loader.h"

namespace tessera {
namespace {

namespace filesystem = std::filesystem;

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  const std::optional<int64_t> value = parse_integer(text == nullptr ? "" : text);
  return value && std::in_range<int>(*value) ? std::optional(static_cast<int>(*value))
                                             : std::nullopt;
}

// Environment variables of a launcher.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* also;  // A second variable that must be set; or null.
};

constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     nullptr},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
    // A batch script has SLURM_PROCID, too; only srun sets SLURM_STEP_ID.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID"},
};

constexpr std::string_view kTransport = "mpi";
constexpr std::string_view kLeftOver =
    ". If nothing started this process, its environment has variables that a launcher left (env | "
    "grep -E '^(OMPI|PMI|SLURM)_'): unset them";

filesystem::path find_transport(const LaunchEnvironment& launch,
                                const std::vector<filesystem::path>& given) {
  std::vector<filesystem::path> folders = given;
  folders.push_back(own_plugins("transports"));
  for (const filesystem::path& folder : folders) {
    const filesystem::path file = folder / fmt::format("{}.so", kTransport);
    if (filesystem::exists(file)) return file;
  }
  fail(
      "{} started {} processes, but the plugin that joins them is not built: {} is missing; "
      "install libopenmpi-dev and openmpi-bin, and build again (./runexp --version, without {}){}",
      launch.by, launch.size, (folders.back() / fmt::format("{}.so", kTransport)).string(),
      launch.by, kLeftOver);
}

}  // namespace

LaunchEnvironment find_launch_environment() {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.also != nullptr && std::getenv(launcher.also) == nullptr) continue;
    const std::optional<int> rank = number_in(launcher.rank), size = number_in(launcher.size);
    if (rank && size && *size > 1)
      return {launcher.name, *rank, *size, number_in(launcher.local_rank).value_or(0)};
  }
  return {};
}

std::shared_ptr<Transport> join_processes(const LaunchEnvironment& launch,
                                          const std::vector<filesystem::path>& folders) {
  if (launch.size == 1) return nullptr;
  load_plugin(find_transport(launch, folders));
  std::shared_ptr<Transport> transport = make_transport(kTransport);
  if (transport->size() != launch.size)
    fail(
        "{} started {} processes, but MPI joined {} of them: use the mpirun of the MPI that "
        "Tessera "
        "was built with, or srun --mpi=pmix{}",
        launch.by, launch.size, transport->size(), kLeftOver);
  return transport;
}

}  // namespace tessera
