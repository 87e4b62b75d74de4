// SPDX-License-Identifier: Apache-2.0
#include "tasks/refit/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/backend/cpu/gemm/einsum.h"
#include "core/ops/einsum.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "tasks/launch_costs/launch_costs.h"
#include "tasks/plan/collective_price.h"
#include "tasks/plan/roofline.h"

namespace tessera {
namespace {

constexpr int kRounds = 3;
// Types of launches with the most time; others hardly count.
constexpr size_t kMostTypes = 400;
constexpr size_t kMostShapes = 48;  // Of products, with a point of their own.

// What hardware files may have.
constexpr double kLeastShare = 1e-3, kLeastSeconds = 1e-12, kMostSeconds = 1.0;
constexpr double kLeastRate = 1e6, kMostRate = 1e18;

// A part of a hardware file that is scaled as one, and the launches that it may change.
struct Figure {
  std::string name;
  std::function<double(const Hardware&)> value;  // For the report.
  std::function<void(Hardware&, double factor)> scale;
  std::function<bool(const Node&)> affects;
};

bool is_product(const Node& node) { return launch_work(node) == LaunchWork::kProduct; }
bool is_kernel(const Node& node) { return launch_work(node) != LaunchWork::kCollective; }

void scale_share(double& share, double factor) {
  share = std::clamp(share * factor, kLeastShare, 1.0);
}
void scale_rate(double& rate, double factor) {
  rate = std::clamp(rate * factor, kLeastRate, kMostRate);
}
void scale_seconds(double& seconds, double factor) {
  seconds = std::clamp(seconds * factor, kLeastSeconds, kMostSeconds);
}

void scale_products(Hardware& hardware, double factor) {
  scale_share(hardware.efficiency.products, factor);
  if (!hardware.products) return;
  for (auto* const points : {&hardware.products->f32, &hardware.products->bf16})
    if (*points)
      for (ProductPoint& point : **points) scale_share(point.share, factor);
}

void scale_copies(Hardware& hardware, double factor) {
  scale_share(hardware.efficiency.copies, factor);
  if (hardware.memory.copies)
    for (CopyPoint& point : *hardware.memory.copies) scale_rate(point.bandwidth, factor);
}

// The rate of an op's kernels.
Figure kernel_figure(const std::string& op, const Hardware& start) {
  const bool is_general = op == kFusedOp.name;
  return {"kernels." + op,
          [op](const Hardware& it) {
            const KernelRate& rate = it.kernels.at(op);
            return rate.f32 ? *rate.f32 : rate.bf16.value_or(0.0);
          },
          [op](Hardware& it, double factor) {
            KernelRate& rate = it.kernels.at(op);
            if (rate.f32) scale_rate(*rate.f32, factor);
            if (rate.bf16) scale_rate(*rate.bf16, factor);
          },
          [op, is_general, kernels = start.kernels](const Node& node) {
            const bool is_other = is_general && node.op->op_class == OpClass::kElementwise &&
                                  !kernels.contains(std::string(node.op->name));
            return node.op->name == op || is_other;
          }};
}

Figure latency_figure(std::string name, DeviceLink Hardware::*link,
                      std::function<bool(const Node&)> affects) {
  return {std::move(name), [link](const Hardware& it) { return (it.*link).latency; },
          [link](Hardware& it, double factor) { scale_seconds((it.*link).latency, factor); },
          std::move(affects)};
}

std::vector<Figure> figures_of(const Hardware& start, const Mesh& mesh) {
  std::vector<Figure> figures = {
      {"efficiency.products", [](const Hardware& it) { return it.efficiency.products; },
       scale_products, is_product},
      {"efficiency.copies", [](const Hardware& it) { return it.efficiency.copies; }, scale_copies,
       is_kernel}};
  for (const auto& [op, rate] : start.kernels) figures.push_back(kernel_figure(op, start));
  if (start.peak_flops.elementwise)
    figures.push_back(
        {"peak_flops.elementwise", [](const Hardware& it) { return *it.peak_flops.elementwise; },
         [](Hardware& it, double factor) { scale_rate(*it.peak_flops.elementwise, factor); },
         [](const Node& node) { return is_kernel(node) && !is_product(node); }});
  figures.push_back({"launch_overhead", [](const Hardware& it) { return it.launch_overhead; },
                     [](Hardware& it, double factor) { scale_seconds(it.launch_overhead, factor); },
                     is_kernel});
  figures.push_back({"efficiency.links", [](const Hardware& it) { return it.efficiency.links; },
                     [](Hardware& it, double factor) { scale_share(it.efficiency.links, factor); },
                     is_collective});
  figures.push_back(latency_figure("link.latency", &Hardware::link, [mesh](const Node& node) {
    return is_collective(node) && !crosses_slices(node, mesh);
  }));
  figures.push_back(latency_figure("network.latency", &Hardware::network, [mesh](const Node& node) {
    return is_collective(node) && crosses_slices(node, mesh);
  }));
  return figures;
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

  int64_t types(const Figure& figure) const {
    return std::ranges::count_if(
        samples_, [&](const Sample& sample) { return figure.affects(*sample.launches->node); });
  }

  // To the least error, between a sixty-fourth and 64 times the value: the best of a coarse grid of
  // factors, then of finer ones around it.
  void scale(Hardware& hardware, const Figure& figure) const {
    constexpr double kRounding = 1e-9;  // A figure that changes nothing keeps its value.
    double best = 1.0, least = error(hardware, figure);
    double step = 2.0;
    for (const int around : {6, 4, 4, 4}) {
      const double middle = best;
      for (int i = -around; i <= around; ++i) {
        const double factor = middle * std::pow(step, i);
        Hardware scaled = hardware;
        figure.scale(scaled, factor);
        const double found = error(scaled, figure);
        if (found < least * (1.0 - kRounding)) least = found, best = factor;
      }
      step = std::pow(step, 1.0 / around);
    }
    if (best != 1.0) figure.scale(hardware, best);
  }

 private:
  double error(const Hardware& hardware, const Figure& figure) const {
    double sum = 0.0;
    for (const Sample& sample : samples_) {
      const MatchedLaunches& launches = *sample.launches;
      if (!figure.affects(*launches.node)) continue;
      const double predicted =
          launch_cost(*launches.graph, *launches.node, mesh_, hardware).seconds;
      sum += sample.weight * std::abs(std::log(predicted / sample.seconds));
    }
    return sum;
  }

  const std::vector<Sample>& samples_;
  const Mesh& mesh_;
};

// Gives the shapes of products that took most time their own points in the curve. Returns how many.
// A GPU's model of tiles is kept.
int64_t add_shapes(Hardware& hardware, const std::vector<Sample>& samples, const Mesh& mesh) {
  if (hardware.tiles) return 0;
  std::vector<ProductPoint> f32, bf16;
  for (const Sample& sample : samples) {
    const Graph& graph = *sample.launches->graph;
    const Node& node = *sample.launches->node;
    if (node.op != &kEinsumOp || f32.size() + bf16.size() >= kMostShapes) continue;
    const LaunchCost cost = launch_cost(graph, node, mesh, hardware);
    const GemmShape shape = make_contraction(graph, node).shape;
    const double seconds = sample.seconds - cost.copies - hardware.launch_overhead;
    // Memory or the launch limits others.
    if (cost.limit != Limit::kProducts || seconds <= 0.0) continue;
    const double share = cost.flops / seconds / hardware.peak_flops(shape.input);
    std::vector<ProductPoint>& points = shape.input == DType::kBF16 ? bf16 : f32;
    points.push_back({shape.m, shape.n, shape.k, std::clamp(share, kLeastShare, 1.0)});
  }
  const auto put = [&](std::optional<std::vector<ProductPoint>>& curve,
                       const std::vector<ProductPoint>& points) {
    if (points.empty()) return;
    if (!curve) curve.emplace();
    for (const ProductPoint& point : points) {
      std::erase_if(*curve, [&](const ProductPoint& each) {
        return each.m == point.m && each.n == point.n && each.k == point.k;
      });
      curve->push_back(point);
    }
  };
  if (f32.empty() && bf16.empty()) return 0;
  if (!hardware.products) hardware.products.emplace();
  put(hardware.products->f32, f32);
  put(hardware.products->bf16, bf16);
  return std::ssize(f32) + std::ssize(bf16);
}

}  // namespace

FittedHardware fit_hardware(const Hardware& start, const std::vector<MatchedLaunches>& launches,
                            double gap, const Mesh& mesh) {
  FittedHardware result{.hardware = start, .fields = {}, .shapes = 0};
  const std::vector<Sample> samples = samples_of(launches, gap);
  const Fit fit(samples, mesh);
  std::vector<Figure> figures = figures_of(start, mesh);
  std::erase_if(figures, [&](const Figure& figure) { return fit.types(figure) == 0; });
  for (int round = 0; round < kRounds; ++round)
    for (const Figure& figure : figures) fit.scale(result.hardware, figure);
  for (const Figure& figure : figures)
    result.fields.push_back(
        {figure.name, figure.value(start), figure.value(result.hardware), fit.types(figure)});
  result.shapes = add_shapes(result.hardware, samples, mesh);
  return result;
}

}  // namespace tessera
