// SPDX-License-Identifier: Apache-2.0
// Models and their gradients traced on meshes of eight devices, under the usual strategies: every
// type and every partial sum is accepted, parameters and gradients have the layouts of the rules,
// and the values equal those of one device, also for the lowered graphs of all eight devices.
#include <cmath>

#include "core/base/error.h"
#include "core/check/numeric_gradient.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/ops/elementwise.h"
#include "core/ops/reshard.h"
#include "layers/attention/latent_attention.h"
#include "layers/feed_forward/feed_forward.h"
#include "layers/fprop_scope.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"
#include "tests/support/simulated_mesh.h"

namespace tessera {
namespace {

// Double precision, sums in another order.
constexpr double kRounding = 1e-12;

struct Split {
  std::string name;
  std::string weights, activations;
};

const std::vector<Split>& splits() {
  static const std::vector<Split> all = {
      {"none", "", ""},
      {"data parallel", "", "batch -> (replica, data)"},
      {"fully sharded", "embed -> data", "batch -> (replica, data)"},
      {"tensor parallel", "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl"},
      {"sequence parallel", "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl, "
       "residual: seq -> mdl"},
      {"fully sharded and tensor parallel",
       "embed -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> (replica, data), mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl"},
      {"all, and the sequence",
       "embed -> (replica, data), mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> (replica, data), mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl, "
       "residual: seq -> mdl"},
      {"all, and the residual's width",
       "embed -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "residual: embed -> mdl, batch -> (replica, data), mlp -> mdl, heads -> mdl, "
       "kv_heads -> mdl, vocab -> mdl"},
      {"context", "embed -> (data, mdl)",
       "batch -> (replica, data), seq -> mdl, attention: seq -> (), attention: heads -> mdl, "
       "attention: kv_heads -> mdl"},
      {"context and tensor parallel", "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> replica, seq -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl, "
       "attention: seq -> (), attention: heads -> (mdl, data), attention: kv_heads -> (mdl, data)"},
      {"ring and tensor parallel",
       "embed -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl",
       "batch -> replica, seq -> data, mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl"},
  };
  return all;
}

// A model with every size divisible by eight.
LanguageModel::HParams divisible(LanguageModel::HParams p, bool repeat) {
  TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
  lm.vocab_size = 40;
  if (repeat) {
    const auto block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>().block_tpl;
    lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  }
  return p;
}

// The loss and each gradient by name.
using Values = std::map<std::string, std::vector<double>>;

double worst_difference(const Values& a, const Values& b) {
  double worst = a.size() == b.size() ? 0.0 : 1.0;
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(values[i] - b.at(name)[i]));
  return worst;
}

// Computed by the reference interpreter on whole arrays, and by eight simulated devices.
Values traced(const LanguageModel::HParams& p, const Split& split) {
  const Mesh mesh = Mesh::standard({2, 2, 2});
  const AxisRules rules{parse_rules(split.weights), parse_rules(split.activations)};
  const std::unique_ptr<BaseModel> model = Template<BaseModel>(p).instantiate();
  Graph graph;
  {
    const TraceScope trace(graph, mesh, rules);
    const std::vector<Tensor> parameters = parameter_inputs(model->parameters());
    Features features;
    features.step = input("step", InputKind::kScalar, make_type(DType::kI32, {}));
    for (const std::string name :
         {"ids", "labels", "segment_ids", "segment_pos", "token_type_ids", "weights"}) {
      const DType dtype = name == "weights" ? DType::kF32 : DType::kI32;
      const Type type = make_type(dtype, {{"batch", 4, {}}, {"seq", 12, {}}});
      features.tensors[name] =
          input(name, InputKind::kBatch, apply_rules(rules.activations, mesh, type));
    }
    const FpropScope scope(parameters, features);
    const ModelOutput result = (*model)(features);
    const Tensor loss = place(result.loss.sum) / place(result.loss.weight);
    output("loss", loss);
    const std::vector<Tensor> slopes = gradients(loss, parameters);
    for (size_t i = 0; i < slopes.size(); ++i) {
      REQUIRE(slopes[i].type() == parameters[i].type());
      output(model->parameters().parameters()[i].path, slopes[i]);
    }
  }
  verify(graph, mesh);
  const ReferenceInputs inputs = sample_inputs(graph);
  Values values;
  for (const auto& [name, array] : evaluate(graph, inputs, mesh)) values[name] = array.values;
  REQUIRE(worst_difference(SimulatedMesh(graph, mesh).run(inputs), values) < kRounding);
  return values;
}

void check_model(const LanguageModel::HParams& p) {
  const Values expected = traced(p, splits().front());
  for (const Split& split : splits()) {
    INFO(split.name);
    REQUIRE(worst_difference(expected, traced(p, split)) < kRounding);
  }
}

TEST_CASE("a GPT-2 is the same model however it is split") {
  check_model(divisible(small_gpt2(), false));
  check_model(divisible(small_gpt2(), true));
}

TEST_CASE("a Llama is the same model however it is split") {
  check_model(divisible(small_llama(), false));
  check_model(divisible(small_llama(), true));
}

TEST_CASE("query heads that are split further than key heads give the same model") {
  const int64_t kv_heads = GENERATE(1, 2);
  const double dropout = GENERATE(0.0, 0.3);
  CAPTURE(kv_heads, dropout);
  LanguageModel::HParams p = divisible(small_llama(), false);
  auto& block = p.lm_tpl.as<TransformerLm::HParams>()
                    .stacked_transformer_tpl.as<StackedTransformer::HParams>()
                    .block_tpl.as<TransformerBlock::HParams>();
  auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  attention.num_kv_heads = kv_heads;
  attention.dropout_rate = dropout;  // Then the fused op is not used.
  const Split split{"heads over mdl and data", "embed -> replica, heads -> (mdl, data)",
                    "batch -> replica, heads -> (mdl, data)"};
  REQUIRE(worst_difference(traced(p, splits().front()), traced(p, split)) < kRounding);
}

TEST_CASE("a masked language model is the same model however it is split") {
  for (const bool has_window : {false, true}) {
    LanguageModel::HParams p = divisible(small_gpt2(), false);
    TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
    lm.type_emb_tpl = TypeEmbedding::HParams{};
    lm.embedding_ln_tpl = LayerNorm::HParams{};
    lm.final_ln_tpl = Template<UnaryLayer>();
    lm.head_tpl = HeadTransform::HParams{};
    auto& block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>()
                      .block_tpl.as<TransformerBlock::HParams>();
    block.norm_policy = NormPolicy::kPost;
    auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
    attention.causal = false;
    if (has_window) attention.window = 3;
    check_model(divisible(p, has_window));
  }
}

TEST_CASE("a c4 model is the same model however it is split") {
  check_model(divisible(small_pax(), false));
  check_model(divisible(small_pax(), true));
}

TEST_CASE("a model with latent attention is the same model however it is split") {
  for (const bool repeat : {false, true}) {
    LanguageModel::HParams p = divisible(small_llama(), false);
    TransformerLm::HParams& lm = p.lm_tpl.as<TransformerLm::HParams>();
    auto& block = lm.stacked_transformer_tpl.as<StackedTransformer::HParams>()
                      .block_tpl.as<TransformerBlock::HParams>();
    block.attention_tpl =
        LatentAttention::HParams{.kv_lora_rank = 8, .q_lora_rank = 16, .rope_dims = 2};
    p = divisible(p, repeat);
    check_model(p);
    const Split latents{"latents over data and mdl",
                        "embed -> replica, kv_latent -> data, q_latent -> (data, mdl)",
                        "batch -> replica, kv_latent -> data, q_latent -> mdl"};
    REQUIRE(worst_difference(traced(p, splits().front()), traced(p, latents)) < kRounding);
  }
}

TEST_CASE("weights that the mesh does not divide are refused with path and sizes") {
  LanguageModel::HParams p = divisible(small_gpt2(), false);
  p.lm_tpl.as<TransformerLm::HParams>().vocab_size = 37;
  try {
    traced(p, splits()[3]);
    FAIL("no error");
  } catch (const Error& error) {
    REQUIRE_THAT(error.what(), Catch::Contains("lm.softmax.w") && Catch::Contains("vocab=37"));
  }
}

}  // namespace
}  // namespace tessera
