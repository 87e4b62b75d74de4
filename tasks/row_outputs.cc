// SPDX-License-Identifier: Apache-2.0
#include "tasks/row_outputs.h"

#include <string>

#include "core/base/error.h"
#include "core/graph/trace.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tasks/base_task.h"

namespace tessera {
namespace {

constexpr std::string_view kBatch = "batch";
constexpr const char* kWeights = "weights";
constexpr const char* kSampleWeights = "eval_sample_weights";

Tensor whole(const Tensor& rows) {
  return reshard(rows, make_type(rows.dtype(), {{std::string(kBatch), rows.size(kBatch), {}}}));
}

// f32["batch …"] -> f32["batch"], replicated.
Tensor sum_of_rows(const Tensor& terms) {
  std::string others;
  for (const std::string& name : terms.type().names())
    if (name != kBatch) others += (others.empty() ? "" : " ") + name;
  return whole(others.empty() ? terms : reduce_sum(terms, others));
}

}  // namespace

void weigh_examples(Features* features) {
  const Tensor examples = features->find(kSampleWeights);
  if (!examples.valid()) return;
  Tensor weights = features->find(kWeights);
  if (!weights.valid()) {
    const Tensor labels = features->find("labels");
    if (!labels.valid()) return;  // A model without labels sets its own weights.
    weights = constant(1.0, DType::kF32, labels.type().axes);
  }
  features->tensors[kWeights] = weights * examples;
}

void output_rows(const ModelOutput& output, const Features& features) {
  if (output.terms.empty()) return;
  for (const auto& [name, terms] : output.terms) {
    if (!terms.sum.type().has(kBatch))
      fail("metric '{}' has no term for each example: its terms are {}, expected an axis 'batch'",
           name, terms.sum.type().text());
    tessera::output(std::string(names::kRowSumPrefix) + name, sum_of_rows(terms.sum));
    tessera::output(std::string(names::kRowWeightPrefix) + name, sum_of_rows(terms.weight));
  }
  for (const char* name : {kSampleWeights, "label_bytes", "source"})
    if (const Tensor rows = features.find(name); rows.valid())
      tessera::output(std::string(names::kRowPrefix) + name, whole(rows));
}

}  // namespace tessera
