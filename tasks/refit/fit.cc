// SPDX-License-Identifier: Apache-2.0
#include "tasks/refit/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/ops/reshard.h"
#include "tasks/launch_costs/launch_costs.h"
#include "tasks/plan/roofline.h"

namespace tessera {
namespace {

constexpr int kRounds = 3;
// Types of launches with the most time; others hardly count.
constexpr size_t kMostTypes = 400;

// One number of a hardware file, and the launches that it may change.
struct Field {
  std::string name;
  std::function<double&(Hardware&)> value;
  double least = 0.0, most = 0.0;  // As hardware files may have.
  std::function<bool(const Node&)> affects;
};

bool is_product(const Node& node) { return launch_work(node) == LaunchWork::kProduct; }
bool is_kernel(const Node& node) { return launch_work(node) != LaunchWork::kCollective; }

std::vector<Field> fields_of(const Mesh& mesh) {
  constexpr double kLeastShare = 1e-3, kLeastSeconds = 1e-12, kMostSeconds = 1.0;
  constexpr double kLeastFlops = 1e6, kMostFlops = 1e21;
  const auto on_links = [](const Node& node) { return is_collective(node); };
  const auto in_slice = [mesh](const Node& node) {
    return is_collective(node) && !crosses_slices(node, mesh);
  };
  const auto between_slices = [mesh](const Node& node) {
    return is_collective(node) && crosses_slices(node, mesh);
  };
  const auto is_vector = [](const Node& node) { return is_kernel(node) && !is_product(node); };
  const auto share = [](double Efficiency::*member) {
    return [member](Hardware& it) -> double& { return it.efficiency.*member; };
  };
  const auto latency = [](DeviceLink Hardware::*link) {
    return [link](Hardware& it) -> double& { return (it.*link).latency; };
  };
  return {
      {"efficiency.products", share(&Efficiency::products), kLeastShare, 1.0, is_product},
      {"efficiency.copies", share(&Efficiency::copies), kLeastShare, 1.0, is_kernel},
      {"peak_flops.elementwise", [](Hardware& it) -> double& { return *it.peak_flops.elementwise; },
       kLeastFlops, kMostFlops, is_vector},
      {"launch_overhead", [](Hardware& it) -> double& { return it.launch_overhead; }, kLeastSeconds,
       kMostSeconds, is_kernel},
      {"efficiency.links", share(&Efficiency::links), kLeastShare, 1.0, on_links},
      {"link.latency", latency(&Hardware::link), kLeastSeconds, kMostSeconds, in_slice},
      {"network.latency", latency(&Hardware::network), kLeastSeconds, kMostSeconds,
       between_slices}};
}

struct Sample {
  const MatchedLaunches* launches = nullptr;
  double seconds = 0.0;  // Of one launch, with the gap before the next,
  double weight = 0.0;   // and of all.
};

std::vector<Sample> samples_of(const std::vector<MatchedLaunches>& launches, double gap) {
  std::vector<Sample> samples;
  for (const MatchedLaunches& each : launches) {
    const double seconds = each.median() + (is_kernel(*each.node) ? gap : 0.0);
    if (seconds > 0.0)
      samples.push_back({&each, seconds, seconds * static_cast<double>(each.seconds.size())});
  }
  std::ranges::stable_sort(samples, std::ranges::greater(), &Sample::weight);
  if (samples.size() > kMostTypes) samples.resize(kMostTypes);
  return samples;
}

class Fit {
 public:
  Fit(const std::vector<Sample>& samples, const Mesh& mesh) : samples_(samples), mesh_(mesh) {}

  double error(const Hardware& hardware, const Field& field) const {
    double sum = 0.0;
    for (const Sample& sample : samples_) {
      const MatchedLaunches& launches = *sample.launches;
      if (!field.affects(*launches.node)) continue;
      const double predicted =
          launch_cost(*launches.graph, *launches.node, mesh_, hardware).seconds;
      sum += sample.weight * std::abs(std::log(predicted / sample.seconds));
    }
    return sum;
  }

  int64_t types(const Field& field) const {
    return std::ranges::count_if(
        samples_, [&](const Sample& sample) { return field.affects(*sample.launches->node); });
  }

  // The value with the least error, between a sixty-fourth and 64 times that of `hardware`: the
  // best of a coarse grid, then of finer ones around it.
  void scale(Hardware& hardware, const Field& field) const {
    const double before = field.value(hardware);
    double best = before, least = error(hardware, field);
    double step = 2.0;
    for (const int refinement : {6, 4, 4, 4}) {
      const double middle = best;
      for (int i = -refinement; i <= refinement; ++i) {
        const double value = std::clamp(middle * std::pow(step, i), field.least, field.most);
        field.value(hardware) = value;
        const double found = error(hardware, field);
        // A field that changes nothing keeps its value.
        if (found < least * (1.0 - 1e-9)) least = found, best = value;
      }
      step = std::pow(step, 1.0 / static_cast<double>(refinement));
    }
    field.value(hardware) = best;
  }

 private:
  const std::vector<Sample>& samples_;
  const Mesh& mesh_;
};

}  // namespace

FittedHardware fit_hardware(const Hardware& start, const std::vector<MatchedLaunches>& launches,
                            double gap, const Mesh& mesh) {
  FittedHardware result{.hardware = start, .fields = {}};
  const std::vector<Sample> samples = samples_of(launches, gap);
  const Fit fit(samples, mesh);
  const bool had_elementwise = start.peak_flops.elementwise.has_value();
  if (!had_elementwise) result.hardware.peak_flops.elementwise = start.peak_flops.f32;
  Hardware before = result.hardware;
  const std::vector<Field> fields = fields_of(mesh);
  for (int round = 0; round < kRounds; ++round)
    for (const Field& field : fields)
      if (fit.types(field) > 0) fit.scale(result.hardware, field);
  for (const Field& field : fields)
    if (const int64_t types = fit.types(field); types > 0)
      result.fields.push_back(
          {field.name, field.value(before), field.value(result.hardware), types});
  if (!had_elementwise && *result.hardware.peak_flops.elementwise == start.peak_flops.f32)
    result.hardware.peak_flops.elementwise.reset();
  return result;
}

}  // namespace tessera
