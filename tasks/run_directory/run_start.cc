// SPDX-License-Identifier: Apache-2.0
#include "tasks/run_directory/run_start.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/backend/cpu/device.h"
#include "core/graph/svg.h"
#include "core/graph/text.h"
#include "core/io/file.h"
#include "tasks/config/run_config.h"
#include "tasks/run_directory/run_directory.h"
#include "tasks/run_directory/shared_directory.h"

namespace tessera {

bool writes_run(RunMode mode) { return mode == RunMode::kTrain || mode == RunMode::kImport; }

std::unique_ptr<RunLock> lock_run(const RunOptions& options, const ProcessGroup& processes) {
  if (!writes_run(options.mode) || options.dry_run || !processes.is_first()) return nullptr;
  return take_run_directory(options.job_log_dir,
                            options.restart ? Earlier::kSetAside : Earlier::kKeep);
}

std::string prepare_run(const ExperimentConfig& config, const RunOptions& options,
                        ProcessGroup& processes) {
  if (!writes_run(options.mode)) return "";
  if (!options.dry_run) check_shared(options.job_log_dir, processes);
  std::string text;
  if (processes.is_first())
    text = prepare_config(
        options.job_log_dir, options.experiment, options.site, config, options.overrides,
        {.change = options.allow_config_change ? ConfigChange::kAllow : ConfigChange::kRefuse,
         .starts_over = options.restart,
         .writes = !options.dry_run});
  return processes.broadcast(text, "the configuration");
}

std::function<void(std::string_view, const Graph&)> graph_dumper(const RunOptions& options,
                                                                 const ProcessGroup& processes) {
  if (options.dump_graph.empty() || !processes.is_first()) return nullptr;
  return [&options](std::string_view stage, const Graph& graph) {
    if (stage != options.dump_graph) return;
    std::filesystem::create_directories(options.job_log_dir);
    const std::filesystem::path file = options.job_log_dir / fmt::format("graph_{}", stage);
    write_file_atomically(file.string() + ".txt", graph_text(graph));
    write_file_atomically(file.string() + ".svg", graph_svg(graph));
  };
}

int64_t devices_at_once(const RunOptions& options, const ProcessGroup& processes) {
  const int64_t usable = usable_cpu_threads();
  const int64_t threads = options.threads > 0 ? options.threads : usable;
  // Of several processes each has a share of the processors; one process has all that it may use.
  const int64_t processors = processes.size() > 1 ? std::min(usable, threads) : usable;
  const int64_t of_a_device = std::max<int64_t>(1, threads / options.devices);
  return processes.size() * std::clamp<int64_t>(processors / of_a_device, 1, options.devices);
}

}  // namespace tessera
