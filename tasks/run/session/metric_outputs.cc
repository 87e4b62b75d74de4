// SPDX-License-Identifier: Apache-2.0
#include "tasks/run/session/metric_outputs.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <ranges>

#include "core/base/error.h"
#include "layers/summaries.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

using Totals = std::vector<MetricMeans::Total>;

const Type& output_type(const Executor& executor, int program, const std::string& name) {
  const auto& outputs = executor.outputs(program);
  const auto found = std::ranges::find(outputs, name, &ProgramArray::name);
  if (found == outputs.end()) fail("the graph of the task has no output '{}'", name);
  return found->type;
}

// A metric with an axis for each layer of a stack, and one without.
bool is_stacked(const Type& type) {
  return !type.axes.empty() && type.axes.front().name == kLayersAxis;
}

// Collects totals, and those of all layers together.
class Collected {
 public:
  void add(const std::string& name, const Totals& elements, bool is_histogram) {
    if (is_histogram) {
      means_.add_histogram(name, elements);
    } else {
      means_.add(name, elements[0].sum, elements[0].weight);
    }
    const std::string shared(short_name(name));
    if (shared == name) return;
    if (is_histogram) {
      Totals& all = of_all_layers_[shared];
      all.insert(all.end(), elements.begin(), elements.end());
    } else {
      means_.add(shared, elements[0].sum, elements[0].weight);
    }
  }
  MetricMeans means() {
    for (const auto& [name, elements] : of_all_layers_) means_.add_histogram(name, elements);
    return std::move(means_);
  }

 private:
  MetricMeans means_;
  std::map<std::string, Totals> of_all_layers_;
};

}  // namespace

std::vector<std::string> outputs_after(const Executor& executor, int program,
                                       std::string_view prefix) {
  std::vector<std::string> found;
  for (const ProgramArray& output : executor.outputs(program))
    if (output.name.starts_with(prefix)) found.push_back(output.name.substr(prefix.size()));
  return found;
}

MetricOutputs::MetricOutputs(const Executor& executor, int program) {
  std::vector<std::string> found = outputs_after(executor, program, names::kSumPrefix);
  std::ranges::stable_partition(found, std::not_fn(is_inspected));
  for (const std::string& name : found) {
    const std::string sum = std::string(names::kSumPrefix) + name;
    const std::string weight = std::string(names::kWeightPrefix) + name;
    const Output output{name, output_type(executor, program, sum),
                        output_type(executor, program, weight)};
    (is_inspected(name) ? inspected_ : metrics_).push_back(output);
    outputs_.insert(outputs_.end(), {sum, weight});
    elements_ += static_cast<size_t>(output.sum.elements() + output.weight.elements());
  }
}

MetricMeans MetricOutputs::totals(std::span<const double> elements) const {
  CHECK(elements.size() == elements_);
  Collected collected;
  for (const Output& metric : metrics_) {
    const auto take = [&](const Type& type) {
      const auto part = elements.first(static_cast<size_t>(type.elements()));
      elements = elements.subspan(part.size());
      return part;
    };
    const std::span<const double> sums = take(metric.sum), weights = take(metric.weight);
    const bool stacked = is_stacked(metric.sum);
    const size_t layers = stacked ? static_cast<size_t>(metric.sum.axes.front().size) : 1;
    const size_t each = sums.size() / layers;
    for (size_t layer = 0; layer < layers; ++layer) {
      Totals totals(each);
      for (size_t i = 0; i < each; ++i) {
        const size_t at = layer * each + i;
        // A weight without the last axes of the sum belongs to all elements along them.
        totals[i] = {sums[at], weights[at * weights.size() / sums.size()]};
      }
      collected.add(stacked ? name_in_stack(metric.name, static_cast<int64_t>(layer)) : metric.name,
                    totals, metric.sum.rank() > (stacked ? 1 : 0));
    }
  }
  return collected.means();
}

std::vector<Inspected> MetricOutputs::inspected(std::span<const double> elements) const {
  for (const Output& metric : metrics_)
    elements =
        elements.subspan(static_cast<size_t>(metric.sum.elements() + metric.weight.elements()));
  std::vector<Inspected> all;
  for (const Output& output : inspected_) {
    const auto size = static_cast<size_t>(output.sum.elements());
    std::ranges::copy(inspected_values(output.name, output.sum, elements.first(size)),
                      std::back_inserter(all));
    elements = elements.subspan(size + static_cast<size_t>(output.weight.elements()));
  }
  return all;
}

std::vector<std::string> MetricOutputs::names() const {
  const std::map<std::string, double> means = totals(std::vector<double>(elements_)).means();
  const auto keys = std::views::keys(means);
  return {keys.begin(), keys.end()};
}

}  // namespace tessera
