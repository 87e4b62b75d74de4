// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <ranges>
#include <regex>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/hparams/fold_layers.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

std::vector<PlannedCollective> planned(const std::vector<CollectiveUse>& uses, const Mesh& mesh) {
  std::vector<PlannedCollective> result;
  const auto key = [](const PlannedCollective& one) {
    return std::tie(one.path, one.value, one.op, one.mesh_axes, one.dtype, one.bytes, one.source,
                    one.phase);
  };
  for (const CollectiveUse& use : uses) {
    const Link link = span_slices(use.mesh_axes, mesh) ? Link::kDcn : Link::kIci;
    PlannedCollective one{use, link, use.site.text()};
    one.value = without_indices(use.value);
    one.path = without_indices(use.path);
    const auto known = std::ranges::find(result, key(one), key);
    if (known == result.end()) {
      result.push_back(std::move(one));
    } else {
      known->count += use.count;
    }
  }
  return result;
}

std::vector<AxisTotal> totals_of(const std::vector<PlannedCollective>& collectives) {
  std::vector<AxisTotal> totals;
  for (const PlannedCollective& one : collectives) {
    auto total = std::ranges::find(totals, one.mesh_axes, &AxisTotal::mesh_axes);
    if (total == totals.end()) total = totals.insert(total, {one.mesh_axes, one.link, 0, 0});
    total->count += one.count;
    total->bytes += one.bytes_per_step();
  }
  std::ranges::stable_sort(totals, std::greater<>(), &AxisTotal::bytes);
  return totals;
}

// Bytes that a device saves for the backward pass, summed by name.
std::vector<NamedBytes> saved_by_name(const std::vector<SavedValue>& values, const Mesh& mesh) {
  std::map<std::string, int64_t> bytes;
  for (const SavedValue& value : values)
    bytes[without_indices(value.name)] += local_type(value.type, mesh).bytes();
  std::vector<NamedBytes> result;
  for (const auto& [name, size] : bytes) result.push_back({name, size});
  std::ranges::stable_sort(result, std::greater<>(), &NamedBytes::bytes);
  return result;
}

std::string_view link_name(Link link) { return link == Link::kDcn ? "dcn" : "ici"; }

std::string axis_json(const MeshAxis& axis) {
  return json_object({{"name", axis.name}, {"ici", axis.ici}, {"dcn", axis.dcn}});
}

std::string total_json(const AxisTotal& total) {
  return json_object({{"mesh_axes", RawJson{json_list(total.mesh_axes, json_quoted)}},
                      {"link", link_name(total.link)},
                      {"count", total.count},
                      {"bytes", total.bytes}});
}

std::string collective_json(const PlannedCollective& one) {
  return json_object({{"op", one.op},
                      {"value", one.value},
                      {"mesh_axes", RawJson{json_list(one.mesh_axes, json_quoted)}},
                      {"link", link_name(one.link)},
                      {"dtype", dtype_name(one.dtype)},
                      {"bytes", one.bytes},
                      {"count", one.count},
                      {"phase", phase_name(one.phase)},
                      {"path", one.path},
                      {"source", one.source}});
}

std::string axes_text(const std::vector<std::string>& mesh_axes) {
  return fmt::format("{}", fmt::join(mesh_axes, "+"));
}

std::string mesh_text(const std::vector<MeshAxis>& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", axis.name, axis.size());
    if (axis.dcn > 1) text += fmt::format(" ({} within a slice x {} slices)", axis.ici, axis.dcn);
  }
  return text;
}

std::string heading(std::string_view title) { return fmt::format("\n{}\n", title); }

std::string memory_text(const Plan& plan) {
  std::string text = heading("memory per device, at the peak of a step");
  for (const auto& [name, bytes] : plan.memory) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("  {:<24}{:>12}\n", words, size_text(bytes));
  }
  text += fmt::format("  {:<24}{:>12}   {} bytes\n", "peak", size_text(plan.peak), plan.peak);
  text += fmt::format("  {:<24}{:>12}   {} bytes, for all programs\n", "allocated",
                      size_text(plan.arena), plan.arena);
  text += heading("activations saved for the backward pass, per device");
  for (const auto& [name, bytes] : plan.saved)
    text += fmt::format("  {:<40}{:>12}\n", ending(name, 39), size_text(bytes));
  return text;
}

std::string totals_text(const Plan& plan) {
  if (plan.totals.empty()) return heading("communication: none");
  std::string text = heading("communication per device and step");
  int64_t of_link[2] = {0, 0};
  for (const AxisTotal& total : plan.totals) {
    text += fmt::format("  over {:<24}{:>12}   {} collectives{}\n", axes_text(total.mesh_axes),
                        size_text(total.bytes), total.count,
                        total.link == Link::kDcn ? ", across slices" : "");
    of_link[static_cast<size_t>(total.link)] += total.bytes;
  }
  text += fmt::format("  {:<29}{:>12}\n  {:<29}{:>12}\n", "within slices (ICI)",
                      size_text(of_link[0]), "across slices (DCN)", size_text(of_link[1]));
  return text;
}

// The value's name, or the layer's path.
std::string what(const PlannedCollective& one) {
  const bool unnamed = one.value.starts_with(one.op);
  const bool says_layer = one.value.find(one.path) != std::string::npos;
  return !unnamed && says_layer ? one.value : one.path;
}

// The collectives that serve one line of code.
struct CollectiveLine {
  std::string source;
  int64_t bytes = 0;
  std::vector<const PlannedCollective*> collectives;
};

std::vector<CollectiveLine> collective_lines_of(const Plan& plan) {
  std::vector<CollectiveLine> lines;
  for (const PlannedCollective& one : plan.collectives) {
    auto line = std::ranges::find(lines, one.source, &CollectiveLine::source);
    if (line == lines.end()) line = lines.insert(line, {one.source, 0, {}});
    line->bytes += one.bytes_per_step();
    line->collectives.push_back(&one);
  }
  std::ranges::stable_sort(lines, std::greater<>(), &CollectiveLine::bytes);
  return lines;
}

// Collectives by the line of layer code that they serve, most bytes first.
std::string collectives_text(const Plan& plan) {
  if (plan.collectives.empty()) return "";
  std::string text = heading("collectives per device, by line of layer code");
  size_t width = 6;
  for (const AxisTotal& total : plan.totals)
    width = std::max(width, axes_text(total.mesh_axes).size() + 2);
  text += fmt::format("  {:<9}{:<15}{:<{}}{:<5}{:>7} {:>8}  {:>9}   {}\n", "phase", "op", "over",
                      width, "of", "times", "sent", "per step", "what");
  for (const CollectiveLine& line : collective_lines_of(plan)) {
    text += line.source.empty() ? "(no line)\n" : line.source + "\n";
    for (const PlannedCollective* one : line.collectives) {
      const std::string row =
          fmt::format("  {:<9}{:<15}{:<{}}{:<5}{:>5} x {:>8}  {:>9}   ", phase_name(one->phase),
                      one->op, axes_text(one->mesh_axes), width, dtype_name(one->dtype), one->count,
                      size_text(one->bytes), size_text(one->bytes_per_step()));
      text +=
          row + ending(what(*one), kPlanColumns - std::min(row.size(), kPlanColumns - 12)) + "\n";
    }
  }
  return text;
}

std::string phases_text(const Plan& plan) {
  std::string text = heading("phases; what follows is of the one with the most tokens in a step");
  double seconds = 0.0;
  for (const auto& [size, steps, peak, step_seconds] : plan.phases) {
    text += fmt::format("  from step {:<8}{:>7} steps of {} rows of {} tokens, peak {}",
                        size.start_step, steps, size.rows, size.seq_len, size_text(peak));
    text += step_seconds ? fmt::format(", {:.4g} ms per step\n", 1e3 * *step_seconds) : "\n";
    seconds += static_cast<double>(steps) * step_seconds.value_or(0.0);
  }
  text += fmt::format("  whole run: {} tokens", plan.tokens_of_run);
  return text + (seconds > 0.0 ? fmt::format(", {:.4g} hours\n", seconds / 3600.0) : "\n");
}

std::string renewal_text(const PlannedRenewal& renewal) {
  std::string text = fmt::format("  every {} steps optimizers renew state: peak {}",
                                 renewal.interval, size_text(renewal.peak));
  if (renewal.step_seconds) text += fmt::format(", {:.4g} ms", 1e3 * *renewal.step_seconds);
  return text + "\n";
}

std::string renewal_json(const PlannedRenewal& renewal) {
  JsonLine json;
  json.add("interval", renewal.interval).add("peak_bytes", renewal.peak);
  if (renewal.step_seconds) json.add("step_seconds", *renewal.step_seconds);
  return json.text();
}

std::string phase_json(const PlannedPhase& phase) {
  const StepSize& size = phase.size;
  JsonLine json;
  json.add("start_step", size.start_step).add("steps", phase.steps).add("batch_size", size.rows);
  json.add("seq_len", size.seq_len).add("tokens_per_step", size.tokens);
  json.add("peak_bytes", phase.peak);
  if (phase.step_seconds) json.add("step_seconds", *phase.step_seconds);
  return json.text();
}

// Numbers in a row of the plan; the last ones of many are left out.
std::string list_text(const std::vector<int64_t>& numbers) {
  constexpr size_t kMost = 24;
  const auto shown = numbers | std::views::take(kMost);
  return fmt::format("{}{}", fmt::join(shown, " "), numbers.size() > kMost ? " .." : "");
}

// For each stage the tasks in their order: ["F0", start, end].
std::string timeline_json(const PipelineTimeline& timeline) {
  const auto task_json = [&](int64_t index) {
    const TimedTask& timed = timeline.tasks[static_cast<size_t>(index)];
    return fmt::format("[\"{}\", {}, {}]", task_text(timed.task), timed.start, timed.end);
  };
  return json_list(stage_orders(timeline.table),
                   [&](const std::vector<int64_t>& order) { return json_list(order, task_json); });
}

std::string row(std::string_view name, const std::string& value, std::string_view remark) {
  return fmt::format("  {:<24}{:>12}   {}\n", name, value, remark);
}

}  // namespace

Plan make_plan(const CompiledStep& step) {
  const StepProgram& program = step.largest();
  Plan plan{.parameters = step.parameters,
            .devices = step.mesh.num_devices(),
            .mesh = step.mesh.axes(),
            .tokens_per_step = step.tokens,
            .flops_per_device = graph_flops(*program.graph),
            .launches = static_cast<int64_t>(program.launches.size()),
            .memory = {{"parameters", program.use.parameters},
                       {"optimizer_state", program.use.state},
                       {"batch", program.use.batch},
                       {"gradients", program.use.gradients},
                       {"activations", program.use.activations},
                       {"temporaries", program.use.temporaries}},
            .peak = program.use.peak,
            .arena = step.arena_bytes,
            .saved = saved_by_name(step.saved, step.mesh),
            .collectives = planned(collectives(*program.graph), step.mesh)};
  if (step.pipeline) {
    plan.pipeline = {*step.pipeline, {}};
    for (const StagePlan& each : step.stages)
      plan.pipeline->peaks.push_back({std::to_string(each.stage), each.plan->use.peak});
  }
  for (const auto& [dtype, count] : model_flops(*step.traced)) plan.flops_per_step += count;
  plan.totals = totals_of(plan.collectives);
  return plan;
}

void write_plan_files(const std::filesystem::path& run_directory, const Plan& plan) {
  write_file_atomically(run_directory / "plan.txt", plan_text(plan));
  write_file_atomically(run_directory / "plan.json", plan_json(plan) + "\n");
  if (plan.prediction && plan.prediction->timeline)
    write_timeline_files(run_directory, *plan.prediction->timeline);
}

std::string plan_json(const Plan& plan) {
  JsonLine json;
  json.add("parameters", plan.parameters)
      .add("devices", plan.devices)
      .add_raw("mesh", json_list(plan.mesh, axis_json, ",\n  "))
      .add("tokens_per_step", plan.tokens_per_step)
      .add("flops_per_step", plan.flops_per_step)
      .add("flops_per_device", plan.flops_per_device)
      .add("launches_per_step", plan.launches)
      .add_raw("memory_per_device", bytes_json(plan.memory))
      .add("peak_bytes", plan.peak)
      .add("arena_bytes", plan.arena)
      .add_raw("saved_for_backward", bytes_json(plan.saved))
      .add_raw("communication", json_list(plan.totals, total_json, ",\n  "))
      .add_raw("collectives", json_list(plan.collectives, collective_json, ",\n  "));
  if (!plan.phases.empty())
    json.add_raw("phases", json_list(plan.phases, phase_json, ",\n  "))
        .add("tokens_of_run", plan.tokens_of_run);
  if (plan.renewal) json.add_raw("renewal", renewal_json(*plan.renewal));
  if (plan.pipeline) json.add_raw("pipeline", pipeline_plan_json(*plan.pipeline));
  if (plan.prediction) json.add_raw("prediction", prediction_json(*plan.prediction, plan.devices));
  return json.text();
}

std::string plan_summary(const Plan& plan) {
  int64_t sent = 0;
  for (const AxisTotal& total : plan.totals) sent += total.bytes;
  return fmt::format("{} parameters; {} FLOPs and {} tokens per step; {} per device{}",
                     count_text(static_cast<double>(plan.parameters)),
                     count_text(plan.flops_per_step), plan.tokens_per_step, size_text(plan.arena),
                     sent > 0 ? fmt::format(", which sends {}", size_text(sent)) : "");
}

std::string plan_text(const Plan& plan) {
  std::string text = fmt::format(
      "parameters         {} ({})\n"
      "devices            {} ({})\n"
      "tokens per step    {}\n"
      "FLOPs per step     {:.4g} of the model; {:.4g} on each device, recomputation included\n"
      "launches per step  {}\n",
      plan.parameters, count_text(static_cast<double>(plan.parameters)), plan.devices,
      mesh_text(plan.mesh), plan.tokens_per_step, plan.flops_per_step, plan.flops_per_device,
      plan.launches);
  if (plan.renewal) text += renewal_text(*plan.renewal);
  if (!plan.phases.empty()) text += phases_text(plan);
  text += memory_text(plan);
  if (plan.pipeline) text += pipeline_plan_text(*plan.pipeline);
  text += totals_text(plan) + collectives_text(plan);
  if (plan.prediction) text += prediction_text(*plan.prediction, plan.devices, plan.arena);
  return std::regex_replace(text, std::regex(" +\n"), "\n");
}

// The pipeline of a training step in its plan: the schedule, the layers, activations and memory of
// each stage, and when a stage is idle. The times are those of layers alone, in units of a forward
// pass of one layer; a backward pass takes two, one for the input and one for the weights.
PipelineTimeline timeline_of_layers(const ModelPipeline& pipeline) {
  PipelineCosts costs;
  costs.pieces.clear();
  for (const int64_t layers : pipeline.layers_of_pieces) {
    const auto time = static_cast<double>(layers);
    costs.pieces.push_back({time, time, time});
  }
  return pipeline_timeline(pipeline.table, costs);
}

std::string pipeline_plan_text(const PlannedPipeline& planned) {
  const ModelPipeline& pipeline = planned.division;
  const PipelineTable& table = pipeline.table;
  const PipelineTimeline timeline = timeline_of_layers(pipeline);
  std::string text = fmt::format("\npipeline: {}, {} stages, {} microbatches\n", table.name,
                                 table.stages, table.microbatches);
  if (table.chunks > 1)
    text += row("chunks of a stage", std::to_string(table.chunks), "pieces of the model");
  text += row("ticks", std::to_string(table.ticks()), "of one task of a piece each");
  text += row("layers of pieces", list_text(pipeline.layers_of_pieces), "in order");
  text += row("activations held", list_text(peak_live_activations(table)), "at each stage");
  text += row("idle", fmt::format("{:.1f} %", 100.0 * timeline.bubble_fraction()),
              "of the time of all stages, with the layers alone");
  for (const auto& [stage, bytes] : planned.peaks)
    text += row("memory of stage " + stage, size_text(bytes), fmt::format("{} bytes", bytes));
  text += "  in units of a layer's forward pass (its backward pass takes two):\n";
  std::istringstream lines(bubble_text(timeline));
  for (std::string line; std::getline(lines, line);) text += "  " + line + "\n";
  return text;
}

std::string pipeline_plan_json(const PlannedPipeline& planned) {
  const ModelPipeline& pipeline = planned.division;
  const PipelineTable& table = pipeline.table;
  const PipelineTimeline timeline = timeline_of_layers(pipeline);
  return json_object({{"schedule", table.name},
                      {"stages", table.stages},
                      {"chunks", table.chunks},
                      {"microbatches", table.microbatches},
                      {"ticks", table.ticks()},
                      {"layers_of_pieces", RawJson{json_list(pipeline.layers_of_pieces)}},
                      {"activations_held", RawJson{json_list(peak_live_activations(table))}},
                      {"idle_fraction", timeline.bubble_fraction()},
                      {"peak_bytes", RawJson{bytes_json(planned.peaks)}},
                      {"timeline", RawJson{timeline_json(timeline)}}});
}

}  // namespace tessera
