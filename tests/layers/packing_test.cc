// SPDX-License-Identifier: Apache-2.0
// A packed document has the same loss as alone in a row: attention is masked by segments and
// positions restart in each, for learned, rotary and sinusoidal positions.
#include <cmath>

#include "core/check/run_graph.h"
#include "core/devices/reference/interpreter.h"
#include "core/graph/trace.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/shuffle.h"
#include "inputs/token_row.h"
#include "layers/fprop_scope.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"
#include "tests/support/test_device.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 2, kSeq = SmallSizes::kSeq;
using Document = std::vector<uint32_t>;  // Encoded.

double uniform(uint64_t key, uint64_t number) {
  return static_cast<double>(mix_bits(number, key) >> 11) * 0x1p-53;
}

Document document(int64_t length, uint64_t number) {
  Document tokens;
  for (int64_t i = 0; i < length; ++i) {
    const double drawn = uniform(number, static_cast<uint64_t>(i));
    tokens.push_back(encode_token(static_cast<int32_t>(drawn * SmallSizes::kVocab), i == 0));
  }
  return tokens;
}

// Rows of documents; those of a row are packed one after the other.
Batch batch_of(Labels labels, const std::vector<std::vector<Document>>& rows) {
  Batch batch = make_token_batch(kRows, kSeq);
  const RowLayout layout(labels);
  for (size_t row = 0; row < rows.size(); ++row) {
    Document run;
    for (const Document& one : rows[row]) run.insert(run.end(), one.begin(), one.end());
    fill_row(layout, run, token_row(batch, static_cast<int64_t>(row)));
  }
  return batch;
}

// The summed loss of a model, traced once.
class LossSum {
 public:
  explicit LossSum(const LanguageModel::HParams& p) {
    const LanguageModel model(p);
    const Mesh mesh;
    const AxisRules rules;
    const TraceScope trace(graph_, mesh, rules);
    const std::vector<Tensor> parameters = parameter_inputs(model.parameters());
    for (const Parameter& each : model.parameters().parameters())
      for (int64_t i = 0; i < each.type.elements(); ++i)
        inputs_[each.path].push_back(uniform(random_path_key(each.path), static_cast<uint64_t>(i)) -
                                     0.5);
    Features features;
    for (const char* name : {"ids", "labels", "segment_ids", "segment_pos", "weights"}) {
      const DType dtype = name == std::string("weights") ? DType::kF32 : DType::kI32;
      features.tensors[name] = input(std::string("batch/") + name, InputKind::kBatch,
                                     make_type(dtype, {{"batch", kRows, {}}, {"seq", kSeq, {}}}));
    }
    const FpropScope scope(parameters, features);
    output("sum", model(features).loss.sum);
  }

  // The sum over the labels of one segment of a row.
  double operator()(const Batch& batch, int64_t row, int32_t segment) {
    set(batch, row, segment);
    return evaluate(graph_, inputs_).at("sum").values.at(0);
  }
  double on_cpu(const Batch& batch, int64_t row, int32_t segment, Device& device) {
    set(batch, row, segment);
    return run_graph(graph_, inputs_, device).at("sum").at(0);
  }

 private:
  static uint64_t random_path_key(const std::string& path) {
    uint64_t key = path.size();
    for (const char c : path) key = mix_bits(static_cast<uint64_t>(c), key);
    return key;
  }
  void set(const Batch& batch, int64_t row, int32_t segment) {
    for (const char* name : {"ids", "labels", "segment_ids", "segment_pos"}) {
      const auto* values = batch.at(name).data<int32_t>();
      inputs_[std::string("batch/") + name].assign(values, values + kRows * kSeq);
    }
    std::vector<double>& weights = inputs_["batch/weights"];
    weights.assign(static_cast<size_t>(kRows * kSeq), 0.0);
    for (int64_t i = row * kSeq; i < (row + 1) * kSeq; ++i)
      if (batch.at("segment_ids").data<int32_t>()[i] == segment)
        weights[static_cast<size_t>(i)] = static_cast<double>(batch.at("weights").data<float>()[i]);
  }

  Graph graph_;
  ReferenceInputs inputs_;
};

std::vector<std::pair<std::string, LanguageModel::HParams>> models() {
  LanguageModel::HParams gpt2 = small_gpt2();
  gpt2.lm_tpl.as<TransformerLm::HParams>().packed_input = true;
  return {{"GPT-2", gpt2}, {"Llama", small_llama()}, {"Pax", small_pax()}, {"MTP", small_mtp()}};
}

TEST_CASE("packed and unpacked documents have the same losses") {
  // Full rows, one with padding; a document of one token.
  const std::vector<std::vector<Document>> packed = {
      {document(5, 1), document(4, 2), document(3, 3)}, {document(1, 4), document(8, 5)}};
  const auto device = make_test_device(1);
  for (const auto& [name, p] : models()) {
    LossSum loss(p);
    for (const Labels labels : {Labels::kShiftRight, Labels::kNextToken}) {
      const Batch together = batch_of(labels, packed);
      for (size_t row = 0; row < packed.size(); ++row) {
        for (size_t i = 0; i < packed[row].size(); ++i) {
          INFO(name << ", document " << i << " of row " << row << ", " << enum_name(labels));
          const auto segment = static_cast<int32_t>(i + 1);
          const auto at = static_cast<int64_t>(row);
          // With next-token labels, padding follows the last document of a row.
          const Batch alone = batch_of(labels, {{packed[row][i]}});
          const double expected = loss(alone, 0, 1);
          const bool scored = labels == Labels::kShiftRight || packed[row][i].size() > 1;
          REQUIRE((expected > 0.1) == scored);
          REQUIRE(loss(together, at, segment) == Approx(expected).epsilon(1e-12).margin(1e-12));
          REQUIRE(loss.on_cpu(together, at, segment, *device) ==
                  Approx(expected).epsilon(1e-5).margin(1e-6));
        }
      }
      // Without the segment mask, the second document would attend to the first.
      const double expected = loss(together, 0, 2);
      Batch seen = together;
      for (int64_t i = 0; i < kSeq; ++i) {
        int32_t& segment = seen.at("segment_ids").data<int32_t>()[i];
        if (segment == 1) segment = 2;
      }
      for (int64_t i = 0; i < 5; ++i) seen.at("weights").data<float>()[i] = 0.0f;
      REQUIRE(std::fabs(loss(seen, 0, 2) - expected) > 1e-4);
    }
  }
}

}  // namespace
}  // namespace tessera
