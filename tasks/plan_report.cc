// SPDX-License-Identifier: Apache-2.0
#include "tasks/plan_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/file.h"
#include "core/base/json_line.h"
#include "core/graph/svg.h"
#include "tasks/console.h"
#include "tasks/throughput.h"

namespace tessera {
namespace {

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

std::array<std::pair<const char*, int64_t>, 5> memory_classes(const MemoryUse& use) {
  return {{{"parameters", use.parameters},
           {"optimizer_state", use.state},
           {"batch", use.batch},
           {"activations", use.activations},
           {"temporaries", use.temporaries}}};
}

// What differs between reports is only how these are printed.
struct Plan {
  int64_t parameters;
  int64_t devices;
  double flops;
  const StepPlan& step;
  std::vector<std::pair<std::string, int64_t>> saved;  // Bytes by name, most first.
  int64_t arena_bytes;
};

// What the backward pass keeps of the forward pass, added up by name.
std::vector<std::pair<std::string, int64_t>> saved_by_name(const std::vector<SavedValue>& values) {
  std::map<std::string, int64_t> bytes;
  for (const SavedValue& value : values) bytes[value.name] += value.bytes;
  std::vector<std::pair<std::string, int64_t>> result(bytes.begin(), bytes.end());
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return result;
}

Plan plan_of(Session& session) {
  double flops = 0.0;
  for (const auto& [dtype, count] : model_flops(session.train_graph())) flops += count;
  return {session.task().model().parameters().elements(),
          session.mesh().num_devices(),
          flops,
          session.executor().plan(session.train_program().program()),
          saved_by_name(session.executor().saved_values(session.train_program().program())),
          session.executor().arena_bytes()};
}

}  // namespace

std::string plan_summary(Session& session) {
  const Plan plan = plan_of(session);
  return fmt::format("{} parameters; {} FLOPs and {} tokens a step; {:.1f} MiB a device",
                     count_text(static_cast<double>(plan.parameters)), count_text(plan.flops),
                     session.tokens_per_step(), mebibytes(plan.arena_bytes));
}

std::string plan_text(Session& session) {
  const Plan plan = plan_of(session);
  std::string text = fmt::format(
      "parameters        {}\ndevices           {} (mesh {})\nFLOPs a step      {:.4g}\n"
      "tokens a step     {}\nlaunches a step   {}\n\nmemory of a device, MiB\n",
      plan.parameters, plan.devices, session.mesh().text(), plan.flops, session.tokens_per_step(),
      plan.step.launches.size());
  for (const auto& [name, bytes] : memory_classes(plan.step.use))
    text += fmt::format("  {:<16}{:>10.2f}\n", name, mebibytes(bytes));
  text += fmt::format("  {:<16}{:>10.2f}\n  {:<16}{:>10.2f}  (all programs; what is allocated)\n",
                      "peak of a step", mebibytes(plan.step.use.peak), "arena",
                      mebibytes(plan.arena_bytes));
  text += "\nsaved for the backward pass, MiB\n";
  for (const auto& [name, bytes] : plan.saved)
    text += fmt::format("  {:<24}{:>10.2f}\n", name, mebibytes(bytes));
  return text + "\ncollectives       none: one device\n";
}

std::string plan_json(Session& session) {
  const Plan plan = plan_of(session);
  JsonLine memory;
  for (const auto& [name, bytes] : memory_classes(plan.step.use)) memory.add(name, bytes);
  memory.add("peak", plan.step.use.peak).add("arena", plan.arena_bytes);
  JsonLine saved;
  for (const auto& [name, bytes] : plan.saved) saved.add(name, bytes);
  return JsonLine()
      .add("parameters", plan.parameters)
      .add("devices", plan.devices)
      .add("mesh", session.mesh().text())
      .add("flops_per_step", plan.flops)
      .add("tokens_per_step", session.tokens_per_step())
      .add("launches_per_step", static_cast<int64_t>(plan.step.launches.size()))
      .add_raw("memory_per_device", memory.text())
      .add_raw("saved_for_backward", saved.text())
      .add_raw("collectives", "[]")
      .text();
}

void write_plan_files(const std::filesystem::path& run_directory, Session& session) {
  write_file_atomically(run_directory / "plan.txt", plan_text(session));
  write_file_atomically(run_directory / "plan.json", plan_json(session) + "\n");
  write_file_atomically(run_directory / "graph.svg", graph_svg(session.train_graph()));
}

}  // namespace tessera
