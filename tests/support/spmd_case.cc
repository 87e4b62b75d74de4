// SPDX-License-Identifier: Apache-2.0
#include "tests/support/spmd_case.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/compile/remat/remat.h"
#include "core/compile/spmd/lower.h"
#include "core/graph/layer_pieces.h"
#include "core/hparams/text.h"
#include "layers/experts/moe_feed_forward.h"
#include "layers/models/transformer.h"
#include "tests/support/catch.h"
#include "tests/support/reference_models.h"

namespace tessera {
namespace {

constexpr std::string_view kData = "batch -> (replica, data)";
constexpr std::string_view kTensor = "mlp -> mdl, heads -> mdl, kv_heads -> mdl, vocab -> mdl";

std::string joined_words(std::string_view first, std::string_view second,
                         std::string_view third = "") {
  return third.empty() ? fmt::format("{}, {}", first, second)
                       : fmt::format("{}, {}, {}", first, second, third);
}

std::vector<TrialRules> all_strategies() {
  const std::string tensor = joined_words(kData, kTensor);
  const std::string sequence = joined_words(tensor, "residual: seq -> mdl");
  const std::string heads = "mlp -> mdl, heads -> mdl, kv_heads -> mdl";
  const std::string context = joined_words(
      kData,
      "seq -> mdl, attention: seq -> (), attention: heads -> mdl, attention: kv_heads -> mdl");
  const std::string tensor_context = joined_words(
      "batch -> replica, seq -> data, attention: seq -> (), attention: heads -> (mdl, data), "
      "attention: kv_heads -> (mdl, data)",
      kTensor);
  return {
      {"replica", "", std::string(kData)},
      {"fsdp", "embed -> data", std::string(kData)},
      {"fsdp over replicas", "embed -> (replica, data)", std::string(kData)},
      {"fsdp over mlp", "mlp -> data, heads -> data, vocab -> data", std::string(kData)},
      {"vocabulary", "vocab -> mdl", joined_words(kData, "vocab -> mdl")},
      {"tensor, whole vocabulary", heads, joined_words(kData, heads)},
      {"tensor", std::string(kTensor), tensor},
      {"sequence", std::string(kTensor), sequence},
      {"fsdp and tensor", joined_words("embed -> data", kTensor), tensor},
      {"fsdp and sequence", joined_words("embed -> data", kTensor), sequence},
      {"fsdp over all, and sequence", joined_words("embed -> (replica, data)", kTensor), sequence},
      {"fsdp inside tensor",
       "mlp -> (mdl, data), heads -> mdl, kv_heads -> mdl, vocab -> (mdl, data)", tensor},
      {"context", "", context},
      {"fsdp and context", "embed -> (data, mdl)", context},
      {"tensor and context", std::string(kTensor), tensor_context},
      {"fsdp, sequence and context", joined_words("embed -> (replica, data)", kTensor),
       joined_words(tensor_context, "residual: seq -> (data, mdl)")},
      {"ring", "", joined_words(kData, "seq -> mdl")},
      {"fsdp and ring", "embed -> (data, mdl)", joined_words(kData, "seq -> mdl")},
      {"tensor and ring", std::string(kTensor),
       joined_words("batch -> replica, seq -> data", kTensor)}};
}

void resize(const TrialSizes& sizes, TransformerLm::HParams& lm) {
  lm.vocab_size = sizes.vocab;
  lm.model_dims = sizes.embed;
  lm.num_heads = sizes.heads;
  lm.hidden_dims = sizes.hidden;
}

LanguageModel::HParams model_of(const SpmdCase& trial) {
  LanguageModel::HParams model = trial.model == TrialModel::kGpt2    ? small_gpt2()
                                 : trial.model == TrialModel::kLlama ? small_llama()
                                                                     : small_pax();
  TransformerLm::HParams& lm = model.lm_tpl.as<TransformerLm::HParams>();
  resize(trial.sizes, lm);
  if (trial.layers > 0) lm.num_layers = trial.layers;
  lm.packed_input = trial.packed;
  if (trial.model == TrialModel::kGpt2)
    lm.position_emb_tpl = TrainablePositionalEmbedding::HParams{.max_seq_length = trial.sizes.seq};
  // With the usual small weights, small models learn too little to show differences.
  if (trial.model != TrialModel::kPax) lm.params_init = WeightInit{InitKind::kGaussian, 0.1};

  Template<SequenceLayer>& stack = lm.stacked_transformer_tpl;
  SoftmaxOptions& loss = lm.softmax_tpl.name() == class_name<FullSoftmax::HParams>()
                             ? lm.softmax_tpl.as<FullSoftmax::HParams>().loss
                             : lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>().loss;
  loss.chunk_tokens = trial.chunk_tokens;
  const bool was_repeated = stack.name() == class_name<Repeated::HParams>();
  TransformerBlock::HParams block =
      (was_repeated ? stack.as<Repeated::HParams>().block_tpl
                    : stack.as<StackedTransformer::HParams>().block_tpl)
          .as<TransformerBlock::HParams>();
  auto& attention = block.attention_tpl.as<DotProductAttention::HParams>();
  if (trial.attention_bias) attention.use_bias = true;
  if (trial.model == TrialModel::kLlama) {
    attention.num_kv_heads = trial.sizes.key_heads;
    attention.dims_per_head = trial.sizes.head_dim;
  }
  if (trial.router.has())
    block.ffn_tpl = MoeFeedForward::HParams{.hidden_dims = 16,
                                            .num_experts = 8,
                                            .router_tpl = trial.router,
                                            .activation_tpl = SiLU::HParams{},
                                            .use_gated_activation = true,
                                            .num_shared_experts = 1};
  if (trial.ffn.has()) block.ffn_tpl = trial.ffn;
  if (trial.dropout) {
    lm.embedding_dropout_rate = 0.1;
    block.residual_dropout_rate = 0.1;
    attention.dropout_rate = 0.1;
    if (!trial.router.has()) block.ffn_tpl.as<FeedForward::HParams>().dropout_rate = 0.2;
  }
  if (trial.repeated) {
    stack = Repeated::HParams{.block_tpl = block};
  } else {
    stack = StackedTransformer::HParams{.block_tpl = block};
  }
  return model;
}

HostArray array_of(const TrialSizes& sizes, DType dtype) {
  HostArray array{dtype, {"batch", "seq"}, {sizes.batch, sizes.seq}, {}};
  array.bytes.resize(static_cast<size_t>(sizes.batch * sizes.seq * dtype_bytes(dtype)));
  return array;
}

// One row: documents of random lengths, each with its own rule, followed by padding. A document's
// last token has no label.
void fill_row(std::mt19937& random, const SpmdCase& trial, size_t row, Batch& batch) {
  const bool packed = trial.packed;
  const auto seq = static_cast<size_t>(trial.sizes.seq);
  const auto vocab = static_cast<uint32_t>(trial.sizes.vocab);
  const auto place = [&](const char* name, size_t at) {
    return batch.at(name).data<int32_t>() + row * seq + at;
  };
  size_t at = 0;
  for (int32_t segment = 1; at < seq; ++segment) {
    const size_t length = packed ? std::min<size_t>(2 + random() % 9, seq - at) : seq;
    const bool is_padding = packed && segment > 2 && random() % 3 == 0;
    uint32_t token = random() % vocab;
    const uint32_t stride = 1 + random() % 3;
    for (size_t i = 0; i < length; ++i, ++at) {
      *place("ids", at) = is_padding ? 0 : static_cast<int32_t>(token);
      token = (token * 5 + stride) % vocab;
      *place("labels", at) = is_padding ? 0 : static_cast<int32_t>(token);
      *place("segment_ids", at) = is_padding ? 0 : segment;
      *place("segment_pos", at) = static_cast<int32_t>(i);
      const bool is_scored = !is_padding && i + 1 < length;
      batch.at("weights").data<float>()[row * seq + at] = is_scored ? 1.0f : 0.0f;
    }
  }
}

Mesh mesh_without_pieces(const SpmdCase& trial) {
  Mesh standard = Mesh::standard(trial.ici, trial.dcn);
  if (trial.stages == 1) return standard;
  std::vector<MeshAxis> axes = standard.axes();
  axes.insert(axes.begin(), {std::string(kStageAxis), trial.stages});
  return Mesh(std::move(axes));
}

}  // namespace

const std::vector<TrialRules>& strategies() {
  static const std::vector<TrialRules> all = all_strategies();
  return all;
}

const TrialRules& strategy(const std::string& name) {
  const auto found = std::find_if(strategies().begin(), strategies().end(),
                                  [&](const TrialRules& each) { return each.name == name; });
  INFO("strategy " << name);
  REQUIRE(found != strategies().end());
  return *found;
}

Mesh SpmdCase::mesh() const {
  Mesh whole = mesh_without_pieces(*this);
  const std::optional<ModelPipeline> pipeline = spmd_pipeline(*this);
  return pipeline ? with_pieces(std::move(whole), *pipeline) : whole;
}

const TrialRules& SpmdCase::rules() const {
  return own_rules ? *own_rules : tessera::strategy(strategy);
}

AxisRules SpmdCase::axis_rules() const {
  return {parse_rules(rules().weights), parse_rules(rules().activations)};
}

std::string SpmdCase::text() const {
  const char* models[] = {"gpt2", "llama", "pax"};
  const std::string by =
      own_rules ? fmt::format("weights: {}; activations: {}", rules().weights, rules().activations)
                : strategy;
  const std::string in_stages =
      stages == 1 ? ""
                  : fmt::format(", {} stages by {} with layers {}", stages,
                                schedule.has() ? to_toml(schedule.to_tree()) : "the default",
                                layers_per_piece);
  return fmt::format(
      "{}{}{} on {}{} by '{}'{}{}{}, remat {}, {} microbatches, chunks of {}, {}, {} layers{}",
      models[static_cast<int>(model)],
      !router.has() ? "" : fmt::format(" with {}", to_toml(router.to_tree())),
      !ffn.has() ? "" : fmt::format(" with {}", ffn.name()), ici,
      dcn.empty() ? "" : fmt::format(" × {}", dcn), by, repeated ? ", repeated" : "",
      packed ? ", packed" : "", dropout ? ", dropout" : "", remat, microbatches, chunk_tokens,
      dtype_name(compute), layers, in_stages);
}

SpmdCase SpmdCase::on_one_device() const {
  SpmdCase one = *this;
  one.ici = {1, 1, 1};
  one.dcn = {};
  one.strategy = "replica";
  one.own_rules.reset();
  one.stages = 1;
  one.schedule = {};
  one.layers_per_piece = {};
  one.chunk_tokens = 0;
  return one;
}

SingleTask::HParams spmd_task(const SpmdCase& trial) {
  return {.dtypes = DTypePolicy{.compute = trial.compute},
          .model = model_of(trial),
          .learner = {.optimizer_tpl = AdamW::HParams{.learning_rate = trial.learning_rate},
                      .clip_gradient_norm_to_value = trial.clip_norm},
          .train = {.num_train_steps = trial.steps,
                    .num_microbatches = trial.microbatches,
                    .pipeline_schedule = trial.schedule,
                    .layers_per_piece = trial.layers_per_piece,
                    .remat_policy = trial.remat}};
}

Batch spmd_batch(const SpmdCase& trial, int64_t step) {
  std::mt19937 random(static_cast<uint32_t>(step) + 17);
  Batch batch{{"ids", array_of(trial.sizes, DType::kI32)},
              {"labels", array_of(trial.sizes, DType::kI32)},
              {"segment_ids", array_of(trial.sizes, DType::kI32)},
              {"segment_pos", array_of(trial.sizes, DType::kI32)},
              {"weights", array_of(trial.sizes, DType::kF32)}};
  for (size_t row = 0; row < static_cast<size_t>(trial.sizes.batch); ++row)
    fill_row(random, trial, row, batch);
  return batch;
}

Type spmd_tokens() {
  const TrialSizes sizes;
  return make_type(DType::kI32, {{"batch", sizes.batch, {}}, {"seq", sizes.seq, {}}});
}

int64_t spmd_model_dims() { return TrialSizes{}.embed; }

std::optional<ModelPipeline> spmd_pipeline(const SpmdCase& trial) {
  const std::unique_ptr<BaseTask> task = Template<BaseTask>(spmd_task(trial)).instantiate();
  return model_pipeline(task->train(), task->model().parameters(), trial.axis_rules(),
                        mesh_without_pieces(trial));
}

Graph traced_step(const SpmdCase& trial) {
  Batch specification = spmd_batch(trial, 0);
  for (auto& [name, array] : specification) array.bytes.clear();
  return Template<BaseTask>(spmd_task(trial))
      .instantiate()
      ->train_graph({trial.mesh(), trial.axis_rules(), specification});
}

Graph lowered_step(const SpmdCase& trial) {
  return lower(rematerialize(traced_step(trial), parse_remat_policy(trial.remat)), trial.mesh());
}

}  // namespace tessera
