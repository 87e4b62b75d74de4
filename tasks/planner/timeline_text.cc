// SPDX-License-Identifier: Apache-2.0
// What a simulated step says beside its launches: exposed communication, bubbles, memory over time,
// and the time and cost of the whole run.
#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

#include "core/base/number_text.h"
#include "tasks/planner/prediction.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr size_t kMostExposedLines = 6;  // Lines of exposed communication.
constexpr size_t kMostStageRows = 8;
constexpr size_t kMostTimelinePoints = 256;  // Points of memory in plan.json.

// "3.2 days", "5.1 hours", "12 seconds".
std::string run_time_text(double seconds) {
  struct Unit {
    double seconds;
    std::string_view name;
  };
  constexpr std::array<Unit, 4> kUnits = {
      {{365.25 * 86400.0, "years"}, {86400.0, "days"}, {3600.0, "hours"}, {60.0, "minutes"}}};
  for (const auto& [unit, name] : kUnits)
    if (seconds >= unit) return fmt::format("{:.3g} {}", seconds / unit, name);
  return fmt::format("{:.3g} seconds", seconds);
}

// The most memory of a stage at one launch, and when that is.
struct Peak {
  MemoryAt memory;
  double seconds = 0.0;
  const PricedLaunch* launch = nullptr;
};

Peak peak_of(const StageTimeline& stage) {
  if (stage.memory.empty()) return {};
  const size_t at = fullest_launches(stage.memory, 1)[0];
  return {stage.memory[at], stage.launches[at].reached, &stage.prices[stage.launches[at].price]};
}

const StageTimeline* fullest(const Prediction& prediction) {
  if (!prediction.timeline || prediction.timeline->stages.empty()) return nullptr;
  return &*std::ranges::max_element(
      prediction.timeline->stages, {},
      [](const StageTimeline& stage) { return peak_of(stage).memory.bytes(); });
}

std::string exposed_rows(const Prediction& prediction) {
  if (prediction.exposed.empty()) return "";
  std::string text = "\nexposed communication: kernels wait, by line of layer code\n";
  for (const ExposedLine& line : prediction.exposed | std::views::take(kMostExposedLines)) {
    const std::string row = fmt::format(
        "  {:>9.3f} ms {:>5.1f} %, of {:>9.3f} ms  ", line.seconds / kMillisecond,
        percent_of(line.seconds, prediction.step_seconds), line.communication / kMillisecond);
    text += row +
            ending(line.source.empty() ? "(no line)" : line.source, kPlanColumns - row.size()) +
            "\n";
  }
  double others = 0.0;
  for (const ExposedLine& line : prediction.exposed | std::views::drop(kMostExposedLines))
    others += line.seconds;
  if (others > 0.0)
    text += fmt::format("  {:>9.3f} ms {:>5.1f} %, in {} other lines\n", others / kMillisecond,
                        percent_of(others, prediction.step_seconds),
                        prediction.exposed.size() - kMostExposedLines);
  return text;
}

// One row for each stage, in percent of the step; of many stages the first and the last ones.
std::string stage_rows(const Prediction& prediction) {
  const size_t count = prediction.stages.size();
  if (count < 2) return "";
  std::string text = fmt::format(
      "\nstages, in percent of the step; bubbles are {:.1f} % of all stages' time\n"
      "  stage  kernels  exposed  bubbles        peak memory\n",
      100.0 * prediction.bubble_share());
  for (size_t i = 0; i < count; ++i) {
    if (count > kMostStageRows && i == kMostStageRows / 2) {
      text += "     ..\n";
      i = count - kMostStageRows / 2;
    }
    const StageTimes& stage = prediction.stages[i];
    const auto share = [&](double part) { return percent_of(part, prediction.step_seconds); };
    text += fmt::format("  {:>5} {:>8.1f} {:>8.1f} {:>8.1f} {:>18}\n", stage.stage,
                        share(stage.kernels), share(stage.exposed), share(stage.idle),
                        size_text(stage.peak));
  }
  return text;
}

std::string peak_rows(const Prediction& prediction) {
  const StageTimeline* stage = fullest(prediction);
  if (stage == nullptr || stage->memory.empty()) return "";
  const Peak peak = peak_of(*stage);
  const std::string row = fmt::format(
      "  {} bytes after {:.3f} ms ({:.0f} %), {} of them gaps, at {}, ", peak.memory.bytes(),
      peak.seconds / kMillisecond, percent_of(peak.seconds, prediction.step_seconds),
      size_text(peak.memory.gaps), peak.launch->name);
  const std::string where = peak.launch->path.empty() ? "the step" : peak.launch->path;
  const size_t left = row.size() + 12 < kPlanColumns ? kPlanColumns - row.size() : 12;
  return "\nmost memory in use\n" + row + ending(where, left) + "\n";
}

double run_seconds(const Prediction& prediction, int64_t steps) {
  return prediction.step_seconds * static_cast<double>(steps);
}

std::optional<double> cost_of_run(const Prediction& prediction, int64_t devices) {
  const std::optional<int64_t> steps = prediction.num_train_steps;
  const std::optional<double> price = prediction.hardware.price_per_hour;
  if (!steps || !price) return std::nullopt;
  return run_seconds(prediction, *steps) / 3600.0 * static_cast<double>(devices) * *price;
}

// The cost at this price of a device per hour.
std::string cost_text(const Prediction& prediction, int64_t devices, double price) {
  const std::optional<double> billion = prediction.cost_per_billion_tokens(devices);
  if (!billion) return "";
  const std::optional<double> run = cost_of_run(prediction, devices);
  return fmt::format(
      "cost               {:.4g} per billion tokens{}, at {:.4g} per device and hour\n", *billion,
      run ? fmt::format(", {:.4g} for the run", *run) : "", price);
}

std::string stage_json(const StageTimes& stage) {
  return json_object({{"stage", stage.stage},
                      {"kernel_seconds", stage.kernels},
                      {"exposed_seconds", stage.exposed},
                      {"idle_seconds", stage.idle},
                      {"input_seconds", stage.input},
                      {"peak_bytes", stage.peak}});
}

std::string line_json(const ExposedLine& line) {
  return json_object({{"source", line.source},
                      {"seconds", line.seconds},
                      {"communication_seconds", line.communication}});
}

std::string memory_json(const StageTimeline& stage) {
  return json_list(fullest_launches(stage.memory, kMostTimelinePoints), [&](size_t launch) {
    return fmt::format("[{:.9g}, {}, {}]", stage.launches[launch].reached,
                       stage.memory[launch].used, stage.memory[launch].bytes());
  });
}

}  // namespace

std::string timeline_text(const Prediction& prediction) {
  return exposed_rows(prediction) + stage_rows(prediction) + peak_rows(prediction);
}

std::string run_text(const Prediction& prediction, int64_t devices) {
  std::string text;
  if (const std::optional<int64_t> steps = prediction.num_train_steps) {
    const double seconds = run_seconds(prediction, *steps);
    const double tokens =
        static_cast<double>(prediction.tokens_per_step) * static_cast<double>(*steps);
    text += fmt::format("whole run          {} steps, {} tokens: {}, {} device-hours\n", *steps,
                        count_text(tokens), run_time_text(seconds),
                        count_text(seconds / 3600.0 * static_cast<double>(devices)));
  }
  if (const std::optional<double> price = prediction.hardware.price_per_hour)
    text += cost_text(prediction, devices, *price);
  return text;
}

void add_timeline_json(JsonLine& json, const Prediction& prediction, int64_t devices) {
  json.add("bubble_share", prediction.bubble_share())
      .add("exposed_share", prediction.exposed_share());
  if (const std::optional<int64_t> steps = prediction.num_train_steps)
    json.add("run_seconds", run_seconds(prediction, *steps));
  if (const std::optional<double> price = prediction.hardware.price_per_hour)
    json.add("price_per_hour", *price);
  if (const std::optional<double> cost = prediction.cost_per_billion_tokens(devices))
    json.add("cost_per_billion_tokens", *cost);
  if (const std::optional<double> cost = cost_of_run(prediction, devices))
    json.add("cost_of_run", *cost);
  json.add_raw("stages", json_list(prediction.stages, stage_json, ",\n  "));
  json.add_raw("exposed", json_list(prediction.exposed, line_json, ",\n  "));
  if (const StageTimeline* stage = fullest(prediction))
    json.add_raw("memory_over_time", memory_json(*stage));
}

}  // namespace tessera
