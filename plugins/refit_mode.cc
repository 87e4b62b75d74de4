// SPDX-License-Identifier: Apache-2.0
#include "plugins/refit_mode.h"

#include <string>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "plugins/loader.h"
#include "plugins/lookup.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

fs::path find_trace(const std::string& given) {
  fs::path file = given;
  if (fs::is_directory(file)) file /= "trace.json.gz";
  if (!fs::is_regular_file(file))
    fail(
        "--trace={}: {} is not a file; expected a run's directory or its trace.json.gz, which new "
        "runs of at least 50 steps and --profile=START:N write",
        given, file.string());
  return file.has_parent_path() ? file : "." / file;
}

}  // namespace

std::optional<RefitOptions> parse_refit(const Flags& flags,
                                        const std::optional<Hardware>& hardware) {
  if (flags.text("mode") != "calibrate") flags.need("--mode=calibrate", {"trace"});
  if (!flags.has("trace")) return std::nullopt;
  flags.refuse("--mode=calibrate --trace",
               {"restart", "allow_config_change", "allow_code_change", "dry_run", "dump_graph",
                "profile", "search", "compare_plan", "output", "launch_costs", "checkpoint"});
  if (!hardware)
    fail(
        "--mode=calibrate --trace starts from a hardware file, whose peaks it keeps: give "
        "--hardware=NAME, one of {}, or a file (docs/hardware.md)",
        fmt::join(hardware_names(own_plugins("hardware")), ", "));
  RefitOptions refit{.trace = find_trace(flags.text("trace")), .hardware = *hardware};
  refit.directory =
      flags.has("job_log_dir") ? fs::path(flags.text("job_log_dir")) : refit.trace.parent_path();
  return refit;
}

std::optional<LaunchCosts> shared_launch_costs(const fs::path& path, ProcessGroup& processes) {
  if (path.empty()) return std::nullopt;
  const std::string text = processes.broadcast(
      processes.is_first() ? read_launch_costs_text(path) : "", "the file of launch costs");
  return LaunchCosts::parse(text, path.string());
}

}  // namespace tessera
