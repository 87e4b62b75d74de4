// SPDX-License-Identifier: Apache-2.0
#include "layers/inspect.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/graph/layer_pieces.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "layers/summaries.h"

namespace tessera {
namespace {

// The last axis of outputs: the statistics of a tensor, by their place.
constexpr std::string_view kAxis = "statistic";
enum Place { kElements, kNonfinite, kZeros, kMean, kSquares, kLeast, kGreatest, kPlaces };
constexpr double kLowest = std::numeric_limits<float>::lowest();

Tensor total(const Tensor& x) { return replicated(reduce_sum(x)); }

Tensor greatest_of(const Tensor& x, const Tensor& is_finite) {
  const Tensor finite = where(is_finite, x, constant(kLowest, DType::kF32));
  return replicated(reduce_max(finite, fmt::format("{}", fmt::join(x.type().names(), " "))));
}

// Computes f32["statistic"]. Squares are of the differences from the mean, so that rounding does
// not hide a small deviation.
Tensor statistics(Tensor x) {
  if (x.type().rank() == 0) x = broadcast(x, {{"value", 1, {}}});
  const Tensor zero = constant(0.0, DType::kF32), one = constant(1.0, DType::kF32);
  x = as_dtype(reduced(stop_gradient(x)), DType::kF32);
  const Tensor finite = is_finite(x);
  const Tensor nonfinite = total(where(finite, zero, one));
  const Tensor elements = constant(static_cast<double>(x.type().elements()), DType::kF32);
  const Tensor count = maximum(elements - nonfinite, one);
  const Tensor mean = total(where(finite, x, zero)) / count;
  std::vector<Tensor> parts(kPlaces);
  parts[kElements] = elements;
  parts[kNonfinite] = nonfinite;
  parts[kZeros] = total(where(equal(x, zero), one, zero));
  parts[kMean] = mean;
  parts[kSquares] = total(where(finite, square(x - mean), zero));
  parts[kLeast] = neg(greatest_of(neg(x), finite));
  parts[kGreatest] = greatest_of(x, finite);
  for (Tensor& part : parts) part = broadcast(part, {{std::string(kAxis), 1, {}}});
  return concat(parts, kAxis);
}

// Combines the statistics of several tensors, in f64.
class Pooled {
 public:
  void add(std::span<const double> of) {
    const double finite = static_cast<double>(of[kElements]) - of[kNonfinite];
    elements_ += of[kElements];
    nonfinite_ += of[kNonfinite];
    zeros_ += of[kZeros];
    if (finite <= 0.0) return;
    const double difference = of[kMean] - mean_, before = finite_;
    finite_ += finite;
    mean_ += difference * finite / finite_;
    squares_ += of[kSquares] + difference * difference * before * finite / finite_;
    least_ = before > 0.0 ? std::min<double>(least_, of[kLeast]) : of[kLeast];
    greatest_ = before > 0.0 ? std::max<double>(greatest_, of[kGreatest]) : of[kGreatest];
  }
  Inspected result(std::string name, std::string type) const {
    const double factor = finite_ > 0.0 ? 1.0 : std::nan("");
    return {std::move(name),    std::move(type),
            factor * mean_,     factor * std::sqrt(squares_ / std::max(finite_, 1.0)),
            factor * least_,    factor * greatest_,
            zeros_ / elements_, nonfinite_ / elements_};
  }

 private:
  double elements_ = 0, nonfinite_ = 0, zeros_ = 0;
  double finite_ = 0, mean_ = 0, squares_ = 0, least_ = 0, greatest_ = 0;
};

}  // namespace

void inspect(Operand x, std::string_view name) {
  SummaryScope* const scope = SummaryScope::current();
  if (!trace_state().inspects || scope == nullptr) return;
  const ErrorPrefix where(x.site.text());
  const SiteScope from(x.site);
  Type type = x.tensor.type();
  type.partial = {};
  if (type.dtype == DType::kBool)
    fail("'{}' is {}, and only numbers are inspected; use where() to make numbers of it", name,
         type.text());
  const std::string full = scope->full_name(name, SummaryScope::Kind::kInspected);
  scope->keep_metric(fmt::format("{}{} {}", kInspectPrefix, full, type.text_sized()),
                     {statistics(x.tensor), constant(1.0, DType::kF32)});
}

std::string text_of(const Inspected& inspected) {
  std::string text =
      fmt::format("{} {}: mean {:.5g}, deviation {:.5g}, {:.5g} to {:.5g}, {:.3g}% zero",
                  inspected.name, inspected.type, inspected.mean, inspected.deviation,
                  inspected.least, inspected.greatest, 100.0 * inspected.zeros);
  if (inspected.nonfinite > 0.0)
    text += fmt::format(", {:.3g}% not finite", 100.0 * inspected.nonfinite);
  return text;
}

std::vector<Inspected> inspected_values(const std::string& metric, const Type& sum,
                                        std::span<const double> elements) {
  const size_t space = metric.find(' ');
  CHECK(is_inspected(metric) && space != std::string::npos, "{}", metric);
  const std::string name = metric.substr(kInspectPrefix.size(), space - kInspectPrefix.size());
  const std::string type = metric.substr(space + 1);
  const int64_t stack = sum.find(kLayersAxis);
  const bool is_stacked = stack >= 0 && name.find("[]") != std::string::npos;
  int64_t inner = 1;  // Consecutive rows of one layer.
  for (size_t i = static_cast<size_t>(stack + 1); is_stacked && i + 1 < sum.axes.size(); ++i)
    inner *= sum.axes[i].size;
  const int64_t layers = is_stacked ? sum.axis(kLayersAxis).size : 1;
  std::map<int64_t, Pooled> pooled;
  for (int64_t row = 0; row < sum.elements() / kPlaces; ++row)
    pooled[is_stacked ? row / inner % layers : 0].add(
        elements.subspan(static_cast<size_t>(row * kPlaces), kPlaces));
  std::vector<Inspected> values;
  for (const auto& [layer, all] : pooled)
    values.push_back(all.result(is_stacked ? name_in_stack(name, layer) : name, type));
  return values;
}

}  // namespace tessera
