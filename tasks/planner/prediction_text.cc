// SPDX-License-Identifier: Apache-2.0
// The prediction of a step as text and as JSON: prediction_text() and prediction_json() of
// tasks/planner/prediction.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/graph/op.h"
#include "core/hparams/fold_layers.h"
#include "core/io/json.h"
#include "core/ops/attention.h"
#include "tasks/planner/prediction.h"
#include "tasks/planner/text.h"

namespace tessera {
namespace {

constexpr double kMilli = 1e-3, kGiga = 1e9, kTera = 1e12;
constexpr size_t kMostGroupRows = 24;
constexpr size_t kObstacles = 6;
constexpr size_t kNameColumns = 22;

// Launches that do the same, in all layers of a stack.
struct LaunchGroup {
  std::string name, path;
  Phase phase = Phase::kForward;
  Limit limit = Limit::kMemory;
  int64_t count = 0;
  double seconds = 0.0, adds = 0.0, ideal = 0.0, copies = 0.0, flops = 0.0, bytes = 0.0;

  void add(const PricedLaunch& launch) {
    const auto times = static_cast<double>(launch.count);
    // The limit of the longest launch.
    if (count == 0 || launch.cost.seconds * static_cast<double>(count) > seconds)
      limit = launch.cost.limit;
    count += launch.count;
    seconds += times * launch.cost.seconds;
    adds += launch.adds;
    ideal += times * launch.ideal;
    copies += times * launch.cost.copies;
    flops += times * launch.cost.flops;
    bytes += times * launch.cost.bytes;
  }
  // Seconds of the step in which the device does not do the model's FLOPs at its peak.
  double loss() const { return adds - ideal; }
};

// What launches serve, for the totals.
enum class Part { kProducts, kAttention, kOther, kUpdate, kCollectives };
constexpr std::array kPartNames = {"matrix products", "attention", "other kernels", "update",
                                   "collectives"};

Part part_of(const PricedLaunch& launch) {
  if (launch.op->op_class == OpClass::kCollective) return Part::kCollectives;
  if (launch.phase == Phase::kUpdate) return Part::kUpdate;
  if (launch.op == &kAttentionOp || launch.op == &kAttentionGradOp) return Part::kAttention;
  return launch.op->op_class == OpClass::kContraction ? Part::kProducts : Part::kOther;
}

std::vector<LaunchGroup> groups_of(const Prediction& prediction) {
  std::vector<LaunchGroup> groups;
  for (const PricedLaunch& launch : prediction.launches) {
    if (launch.count == 0) continue;
    const std::string path = without_indices(launch.path);
    auto group = std::ranges::find_if(groups, [&](const LaunchGroup& each) {
      return each.name == launch.name && each.path == path && each.phase == launch.phase;
    });
    if (group == groups.end())
      group = groups.insert(group, {.name = launch.name, .path = path, .phase = launch.phase});
    group->add(launch);
  }
  std::ranges::stable_sort(groups, std::greater<>(), &LaunchGroup::adds);
  return groups;
}

// "616 TFLOP/s", "3.91 TB/s", "0.31 GB/s".
std::string rate_of(double amount, double seconds, double unit, std::string_view name) {
  const double rate = amount / seconds / unit;
  return fmt::format("{:.{}f} {}", rate, rate < 10.0 ? 2 : 0, name);
}

std::string rate_text(Limit limit, double flops, double bytes, double seconds) {
  if (limit == Limit::kLaunch || seconds <= 0.0) return "launch";
  if (limit == Limit::kLinks) return rate_of(bytes, seconds, kGiga, "GB/s");
  if (limit == Limit::kMemory) return rate_of(bytes, seconds, kTera, "TB/s");
  return limit == Limit::kProducts ? rate_of(flops, seconds, kTera, "TFLOP/s") : "arithmetic";
}

// At most `width` columns; keeps the beginning.
std::string beginning(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

std::string group_rows(const std::vector<LaunchGroup>& groups, double step) {
  std::string text = fmt::format("  {:>9} {:>6} {:>6} {:>6} {:>12}  {:<8} {:<22} {}\n", "ms", "%",
                                 "lost", "times", "rate", "phase", "op", "layer");
  for (size_t i = 0; i < std::min(groups.size(), kMostGroupRows); ++i) {
    const LaunchGroup& group = groups[i];
    const std::string name = group.copies > 0.0 ? group.name + " + copies" : group.name;
    const std::string row =
        fmt::format("  {:>9.3f} {:>6.1f} {:>6.1f} {:>6} {:>12}  {:<8} {:<22} ", group.adds / kMilli,
                    percent_of(group.adds, step), percent_of(group.loss(), step), group.count,
                    rate_text(group.limit, group.flops, group.bytes, group.seconds),
                    phase_name(group.phase), beginning(name, kNameColumns));
    text += row + ending(group.path, kPlanColumns - row.size()) + "\n";
  }
  if (groups.size() <= kMostGroupRows) return text;
  double adds = 0.0, loss = 0.0;
  int64_t count = 0;
  for (size_t i = kMostGroupRows; i < groups.size(); ++i) {
    adds += groups[i].adds;
    loss += groups[i].loss();
    count += groups[i].count;
  }
  return text + fmt::format("  {:>9.3f} {:>6.1f} {:>6.1f} {:>6} {:>12}  {} others\n", adds / kMilli,
                            percent_of(adds, step), percent_of(loss, step), count, "",
                            groups.size() - kMostGroupRows);
}

std::string part_rows(const Prediction& prediction) {
  std::array<LaunchGroup, kPartNames.size()> parts;
  for (const PricedLaunch& launch : prediction.launches)
    parts[static_cast<size_t>(part_of(launch))].add(launch);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const LaunchGroup& part = parts[i];
    if (part.count == 0) continue;
    std::string note;
    if (static_cast<Part>(i) == Part::kCollectives)
      note = fmt::format("  {:.1f} ms, {:.1f} of them beside compute", part.seconds / kMilli,
                         (part.seconds - part.adds) / kMilli);
    else if (part.copies > 0.0)
      note = fmt::format("  {:.1f} ms of them copy operands", part.copies / kMilli);
    text += fmt::format(
        "  {:>9.3f} {:>6.1f} {:>6.1f} {:>6} {:>12}  {:<15}{}\n", part.adds / kMilli,
        percent_of(part.adds, prediction.step_seconds),
        percent_of(part.loss(), prediction.step_seconds), part.count,
        rate_text(static_cast<Part>(i) <= Part::kAttention ? Limit::kProducts : part.limit,
                  part.flops, part.bytes, part.seconds),
        kPartNames[i], note);
  }
  return text;
}

// What the stream of kernels does beside launches.
std::string waits_rows(const Prediction& prediction) {
  if (prediction.stages.empty()) return "";
  const StageTimes& stage = *std::ranges::max_element(prediction.stages, {}, &StageTimes::kernels);
  std::string text;
  const auto row = [&](double seconds, std::string_view name, const std::string& note) {
    if (seconds <= 0.0) return;
    const double percent = percent_of(seconds, prediction.step_seconds);
    text += fmt::format("  {:>9.3f} {:>6.1f} {:>6.1f} {:>6} {:>12}  {:<15}{}\n", seconds / kMilli,
                        percent, percent, "", "", name, note);
  };
  row(stage.idle, "bubbles", fmt::format("  of stage {}, whose launches these are", stage.stage));
  row(stage.input, "input", "  the batch, from the host's memory");
  return text;
}

// What costs most MFU.
std::string obstacles(std::vector<LaunchGroup> groups, double step) {
  std::ranges::stable_sort(groups, std::greater<>(), &LaunchGroup::loss);
  std::string text = "\nin the way of a higher MFU\n";
  for (size_t i = 0; i < std::min(groups.size(), kObstacles); ++i) {
    const LaunchGroup& group = groups[i];
    const std::string row =
        fmt::format("  {:>4.1f} points: {}, {}, ", percent_of(group.loss(), step),
                    beginning(group.name, 40), phase_name(group.phase));
    text += row + ending(group.path.empty() ? "the step" : group.path, kPlanColumns - row.size()) +
            "\n";
  }
  return text;
}

std::string_view limit_name(Limit limit) {
  constexpr std::array<std::string_view, 5> kNames = {"products", "arithmetic", "memory", "links",
                                                      "launch"};
  return kNames[static_cast<size_t>(limit)];
}

// A rate in units of 10^12: "790", "0.24".
std::string in_tera(double rate) {
  return fmt::format("{:.{}f}", rate / kTera, rate < 10.0 * kTera ? 2 : 0);
}

// A line about figures that are less certain than for the GPUs that the prices were made for.
std::string calibration_text(const Hardware& hardware, int64_t devices) {
  if (hardware.processor && devices > hardware.processor->devices)
    return fmt::format(
        "  measured with {} {} on a host: more of them share its processor and are slower\n",
        hardware.processor->devices, hardware.processor->devices == 1 ? "device" : "devices");
  if (hardware.tiles || hardware.products) return "";
  if (hardware.kind == HardwareKind::kGpu)
    return "  not calibrated: products of all shapes run at this rate (the file has no [tiles] "
           "or [products])\n";
  return "  not calibrated: launches and attention as on a GPU, products of all shapes at this "
         "rate\n";
}

// A line that says whose attention kernels were priced.
std::string attention_text(const Prediction& prediction) {
  std::vector<std::string> texts;
  for (const PricedLaunch& launch : prediction.launches) {
    if (launch.cost.kernels.empty() || launch.is_measured) continue;
    texts.push_back(fmt::format("{} {}", launch.op->name, launch.cost.kernels));
  }
  if (texts.empty()) return "";
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  return fmt::format("  kernels priced: {} (docs/planner.md)\n", fmt::join(texts, ", "));
}

// A line that says which launches have measured costs.
std::string measured_text(const Prediction& prediction) {
  if (prediction.hardware.launches.empty()) return "";
  int64_t count = 0, all = 0;
  for (const PricedLaunch& launch : prediction.launches) {
    all += launch.count;
    if (launch.is_measured) count += launch.count;
  }
  return fmt::format(
      "  launch costs: {:.1f} % of the time of launches is measured ({} of {}), the rest "
      "predicted\n",
      100.0 * prediction.measured_share(), count, all);
}

std::string launch_json(const PricedLaunch& launch) {
  JsonLine json;
  json.add("op", std::string_view(launch.name))
      .add("path", std::string_view(launch.path))
      .add("source", std::string_view(launch.source))
      .add("phase", phase_name(launch.phase))
      .add("count", launch.count)
      .add("seconds", launch.cost.seconds)
      .add("adds_seconds", launch.adds)
      .add("limit", limit_name(launch.cost.limit))
      .add("flops", launch.cost.flops)
      .add("model_flops", launch.model_flops)
      .add("bytes", launch.cost.bytes);
  if (!launch.cost.kernels.empty()) json.add("kernels", launch.cost.kernels);
  if (launch.is_measured) json.add_raw("measured", "true");
  return json.text();
}

// The peak that MFU is measured against: that of the products' dtypes.
std::string peak_text(const Prediction& prediction) {
  constexpr double kRounding = 1e-9;
  const PeakFlops& peaks = prediction.hardware.peak_flops;
  std::vector<std::string> texts;
  for (const auto& [name, peak] :
       {std::pair{"8 bits", peaks.fp8.value_or(0.0)}, {"bf16", peaks.bf16}, {"f32", peaks.f32}}) {
    if (std::ranges::any_of(prediction.launches, [&, peak = peak](const PricedLaunch& launch) {
          return std::abs(launch.model_flops - peak * launch.ideal) <
                 kRounding * launch.model_flops;
        }))
      texts.push_back(fmt::format("{} TFLOP/s in {}", in_tera(peak), name));
  }
  return fmt::format("{}", fmt::join(texts, " and "));
}

std::string beside_text(const Hardware& hardware) {
  const int64_t bytes = bytes_beside_arena(hardware);
  if (bytes == 0) return "";
  return fmt::format(
      "                   beside {} for the driver, its libraries and graphs (an estimate)\n",
      size_text(bytes));
}

}  // namespace

std::string prediction_text(const Prediction& prediction, int64_t devices, int64_t arena_bytes) {
  const Hardware& hardware = prediction.hardware;
  const double step = prediction.step_seconds;
  const std::vector<LaunchGroup> groups = groups_of(prediction);
  std::string text = fmt::format(
      "\npredicted for {}{}, not measured\n"
      "  products of bf16 reach {} TFLOP/s of {}, memory {:.2f} TB/s of {:.2f}\n"
      "{}{}{}  lost: points of MFU, the time that is not spent on the model's FLOPs at the "
      "peak\n\n",
      devices > 1 ? fmt::format("{} x ", devices) : "", hardware.title,
      in_tera(reachable_flops(DType::kBF16, hardware)), in_tera(hardware.peak_flops(DType::kBF16)),
      reachable_bandwidth(hardware) / kTera, hardware.memory.bandwidth / kTera,
      calibration_text(hardware, devices), attention_text(prediction), measured_text(prediction));
  text += group_rows(groups, step) + "\n" + part_rows(prediction);
  text += waits_rows(prediction);
  int64_t count = 0;
  for (const LaunchGroup& group : groups) count += group.count;
  double determinism = 0.0;
  for (const PricedLaunch& launch : prediction.launches)
    determinism += to_double(launch.count) * launch.cost.determinism;
  const std::string less =
      fmt::format(", up to {:.2f} less with task.train.deterministic=false", determinism / kMilli);
  text += fmt::format("  {:>9.3f}  100.0 {:>6.1f} {:>6} {:>12}  step\n", step / kMilli,
                      100.0 - 100.0 * prediction.mfu, count, "");
  text += obstacles(groups, step) + timeline_text(prediction);
  text += fmt::format(
      "\n"
      "step time          {:.2f} ms{}\n"
      "tokens per second  {:.0f}{}\n"
      "MFU                {:.1f} % (causal half of attention, peak {})\n"
      "{}"
      "memory             {} of {}, without scratch memory of kernels{}\n{}",
      step / kMilli, determinism > 0.0 ? less : "", prediction.tokens_per_second,
      devices > 1 ? fmt::format(", {:.0f} per device",
                                prediction.tokens_per_second / static_cast<double>(devices))
                  : "",
      100.0 * prediction.mfu, peak_text(prediction), run_text(prediction, devices),
      size_text(arena_bytes), size_text(arena_room(hardware)),
      arena_bytes > arena_room(hardware) ? ": it does not fit" : "", beside_text(hardware));
  return text;
}

std::string prediction_json(const Prediction& prediction, int64_t devices) {
  std::vector<std::string> launches;
  for (const PricedLaunch& launch : prediction.launches)
    if (launch.count > 0) launches.push_back(launch_json(launch));
  JsonLine json;
  json.add("hardware", std::string_view(prediction.hardware.name))
      .add("step_seconds", prediction.step_seconds)
      .add("tokens_per_second", prediction.tokens_per_second)
      .add("mfu", prediction.mfu);
  if (!prediction.hardware.launches.empty())
    json.add("measured_share", prediction.measured_share());
  add_timeline_json(json, prediction, devices);
  return json.add_raw("launches", fmt::format("[\n  {}\n]", fmt::join(launches, ",\n  "))).text();
}

}  // namespace tessera
