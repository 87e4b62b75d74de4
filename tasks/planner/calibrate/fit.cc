// SPDX-License-Identifier: Apache-2.0
#include "tasks/planner/calibrate/fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/devices/contraction.h"
#include "core/ops/einsum.h"
#include "tasks/planner/prices/roofline.h"

namespace tessera {
namespace {

constexpr int kRounds = 3;
constexpr double kMost = 64.0;       // The largest factor by which a round changes a figure.
constexpr size_t kMostShapes = 128;  // Most shapes of products with a point of their own.

struct Number {
  double* value = nullptr;
  double least = 0.0, most = 0.0;  // The range that hardware files accept.
};
Number share_number(double& value) { return {&value, 1e-3, 1.0}; }
Number rate_number(double& value) { return {&value, 1e3, 1e21}; }
Number seconds_number(double& value) { return {&value, 1e-12, 1.0}; }

// Numbers of a hardware file that are scaled as one; the first is reported.
struct Figure {
  std::string name;
  std::vector<Number> numbers;
  bool is_rate = true;                               // false: launches take longer if it is larger.
  std::vector<const MeasuredLaunch*> launches = {};  // The launches that depend on it.

  using Values = std::vector<double>;
  Values values() const {
    Values values;
    for (const Number& each : numbers) values.push_back(*each.value);
    return values;
  }
  void set(const Values& values) {
    for (size_t i = 0; i < values.size(); ++i) *numbers[i].value = values[i];
  }
  // Makes the part of launch times that it causes `times` as long, within the limits.
  void slow(double times) {
    for (const Number& each : numbers)
      *each.value =
          std::clamp(is_rate ? *each.value / times : *each.value * times, each.least, each.most);
  }
};

std::vector<Figure> figures_of(Hardware& it) {
  Figure products{"efficiency.products", {share_number(it.efficiency.products)}};
  if (it.products)
    for (auto* const points : {&it.products->f32, &it.products->bf16})
      if (*points)
        for (ProductPoint& point : **points) products.numbers.push_back(share_number(point.share));
  Figure copies{"efficiency.copies", {share_number(it.efficiency.copies)}};
  if (it.memory.copies)
    for (CopyPoint& point : *it.memory.copies)
      copies.numbers.push_back({&point.bandwidth, 1e6, 1e18});
  std::vector<Figure> figures = {std::move(products), std::move(copies)};
  for (auto& [op, kernel] : it.kernels) {
    const std::string name = "kernels." + op;
    if (kernel.f32) figures.push_back({name + ".f32", {rate_number(*kernel.f32)}});
    if (kernel.bf16) figures.push_back({name + ".bf16", {rate_number(*kernel.bf16)}});
    if (kernel.start) figures.push_back({name + ".start", {{&*kernel.start, 1e-3, 1e6}}, false});
  }
  if (it.peak_flops.elementwise)
    figures.push_back({"peak_flops.elementwise", {{&*it.peak_flops.elementwise, 1e6, 1e21}}});
  figures.push_back({"launch_overhead", {seconds_number(it.launch_overhead)}, false});
  figures.push_back({"efficiency.links", {share_number(it.efficiency.links)}});
  figures.push_back({"link.latency", {seconds_number(it.link.latency)}, false});
  figures.push_back({"network.latency", {seconds_number(it.network.latency)}, false});
  return figures;
}

class Fit {
 public:
  Fit(const Hardware& hardware, const std::vector<MeasuredLaunch>& launches, const Mesh& mesh)
      : hardware_(hardware), launches_(launches), mesh_(mesh) {}

  void find_launches(Figure& figure) const {
    std::vector<double> prices;
    for (const MeasuredLaunch& launch : launches_) prices.push_back(price(launch));
    const Figure::Values kept = figure.values();
    figure.slow(kMost);
    for (size_t i = 0; i < launches_.size(); ++i)
      if (price(launches_[i]) > prices[i]) figure.launches.push_back(&launches_[i]);
    figure.set(kept);
  }

  // Scales the figure to the least error, by a factor from 1/64 to 64: the best of a coarse grid of
  // factors, then of finer ones around it.
  void scale(Figure& figure) const {
    constexpr double kRounding = 1e-9;  // A figure that changes nothing keeps its value.
    const Figure::Values kept = figure.values();
    double best = 1.0, least = error(figure), step = 2.0;
    for (const int around : {6, 4, 4, 4}) {
      const double middle = best;
      for (int i = -around; i <= around; ++i) {
        const double times = middle * std::pow(step, i);
        figure.slow(times);
        const double found = error(figure);
        if (found < least * (1.0 - kRounding)) least = found, best = times;
        figure.set(kept);
      }
      step = std::pow(step, 1.0 / around);
    }
    if (best != 1.0) figure.slow(best);
  }

 private:
  double price(const MeasuredLaunch& launch) const {
    return launch_cost(*launch.graph, *launch.node, mesh_, hardware_).seconds;
  }
  double error(const Figure& figure) const {
    double sum = 0.0;
    for (const MeasuredLaunch* const launch : figure.launches)
      sum += launch->weight * std::abs(std::log(price(*launch) / launch->seconds));
    return sum;
  }

  const Hardware& hardware_;
  const std::vector<MeasuredLaunch>& launches_;
  const Mesh& mesh_;
};

}  // namespace

std::vector<FittedField> fit_hardware(Hardware& hardware,
                                      const std::vector<MeasuredLaunch>& launches, const Mesh& mesh,
                                      const std::vector<std::string_view>& prefixes) {
  const Fit fit(hardware, launches, mesh);
  std::vector<Figure> figures = figures_of(hardware);
  std::erase_if(figures, [&](Figure& figure) {
    const auto begins = [&](std::string_view prefix) { return figure.name.starts_with(prefix); };
    if (!prefixes.empty() && std::ranges::none_of(prefixes, begins)) return true;
    fit.find_launches(figure);
    return figure.launches.empty();
  });
  std::vector<FittedField> fields;
  for (const Figure& figure : figures)
    fields.push_back({figure.name, figure.values()[0], 0.0, std::ssize(figure.launches)});
  for (int round = 0; round < kRounds; ++round)
    for (Figure& figure : figures) fit.scale(figure);
  for (size_t i = 0; i < figures.size(); ++i) fields[i].after = figures[i].values()[0];
  return fields;
}

int64_t add_product_points(Hardware& hardware, std::vector<MeasuredLaunch> launches,
                           const Mesh& mesh) {
  std::erase_if(launches, [](const MeasuredLaunch& each) { return each.node->op != &kEinsumOp; });
  if (hardware.tiles || launches.empty()) return 0;
  std::ranges::stable_sort(launches, std::ranges::greater(), &MeasuredLaunch::weight);
  launches.resize(std::min(launches.size(), kMostShapes));
  ProductCurve curve = hardware.products.value_or(ProductCurve());
  for (const MeasuredLaunch& launch : launches) {
    const LaunchCost cost = launch_cost(*launch.graph, *launch.node, mesh, hardware);
    const GemmShape shape = make_contraction(*launch.graph, *launch.node).shape;
    const double seconds =
        std::max(launch.seconds - cost.copies - hardware.launch_overhead, 0.02 * launch.seconds);
    const double share = cost.flops / seconds / hardware.peak_flops(shape.input);
    auto& points = shape.input == DType::kBF16 ? curve.bf16 : curve.f32;
    if (!points) points.emplace();
    std::erase_if(*points, [&](const ProductPoint& each) {
      return each.m == shape.m && each.n == shape.n && each.k == shape.k;
    });
    points->push_back({shape.m, shape.n, shape.k, std::clamp(share, 1e-4, 1.0)});
  }
  hardware.products = std::move(curve);
  return std::ssize(launches);
}

}  // namespace tessera
