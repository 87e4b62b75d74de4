// SPDX-License-Identifier: Apache-2.0
#include "tests/composition/model.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "core/base/crc32c.h"
#include "tests/composition/meshes.h"

namespace tessera {
namespace {

// Large enough for what divides them. Half as many rows save time where few devices share them.
CompositionSizes sizes_of(const Composition& composition) {
  const bool has_threes =
      composition.stages % 3 == 0 ||
      std::ranges::any_of(composition.mesh, [](const AxisUse& use) { return use.size % 3 == 0; });
  const bool has_microbatches = std::ranges::any_of(
      composition.features, [](const auto& name) { return feature(name).group == "microbatches"; });
  const int64_t batch = composition.devices() <= 4 && !has_microbatches ? 8 : 16;
  CompositionSizes sizes = has_threes ? CompositionSizes{48, 24, 6, 4, 24, 12, 12, 6}
                                      : CompositionSizes{32, 16, 8, 4, 32, batch, 8, 8};
  // A ring of k devices attends in 2k chunks. In one of a single token no mask has an effect.
  int64_t ring = 1;
  for (const AxisUse& use : composition.mesh)
    if (use.role == "ring" || use.role == "fsdp_ring") ring *= use.size;
  sizes.seq = std::max(sizes.seq, 4 * ring);
  return sizes;
}

ModelParts base_parts(const CompositionSizes& sizes) {
  ModelParts parts;
  parts.sizes = sizes;
  parts.attention.dims_per_head = parts.sizes.head_dim;
  parts.attention.rotary_tpl = RotaryPositionEmbedding::HParams{};
  parts.dense = {.activation_tpl = SiLU::HParams{}, .use_gated_activation = true};
  parts.block.norm_tpl = RmsNorm::HParams{};
  parts.lm.final_ln_tpl = RmsNorm::HParams{};
  parts.task.train = {.num_train_steps = 2, .parameter_norms = true};
  parts.task.learner.optimizer_tpl = AdamW::HParams{.epsilon = 1e-4};
  return parts;
}

Template<UnaryLayer> feed_forward(const ModelParts& parts) {
  if (!parts.has_experts) return parts.dense;
  MoeFeedForward::HParams experts = parts.experts;
  experts.hidden_dims = parts.sizes.hidden / 2;
  experts.num_experts = parts.sizes.experts;
  experts.activation_tpl = SiLU::HParams{};
  experts.use_gated_activation = true;
  if (parts.experts_choose) {
    experts.router_tpl = parts.choice;
  } else {
    experts.router_tpl = parts.router;
  }
  return experts;
}

// An encoder of as many layers and of the same parts, whose output the decoder's blocks attend to.
void add_encoder(const ModelParts& parts, TransformerBlock::HParams& block,
                 TransformerLm::HParams& lm) {
  TransformerBlock::HParams encoder_block = block;
  DotProductAttention::HParams attention = parts.attention;
  attention.causal = false;
  if (attention.position_bias_tpl.holds<RelativePositionBias::HParams>()) {
    auto& shared_id =
        attention.position_bias_tpl.as<RelativePositionBias::HParams>().layer.shared_id;
    if (shared_id) shared_id = "encoder_bias";
  }
  encoder_block.attention_tpl = attention;
  TransformerEncoder::HParams encoder{.final_ln_tpl = lm.final_ln_tpl};
  if (parts.is_repeated) {
    encoder.stacked_transformer_tpl = Repeated::HParams{.block_tpl = encoder_block};
  } else {
    encoder.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = encoder_block};
  }
  lm.encoder_tpl = encoder;
  block.cross_attention_tpl = parts.cross_attention;
}

// A decoder with dense layers, which reads the batch's ids.
TransformerLm::HParams teacher(const ModelParts& parts, TransformerLm::HParams lm) {
  DotProductAttention::HParams attention = parts.attention;
  attention.position_bias_tpl = {};
  const TransformerBlock::HParams block{.attention_tpl = attention, .ffn_tpl = parts.dense};
  lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  lm.softmax_tpl = SharedEmbeddingSoftmax::HParams{.loss = {.soft_cap = 5.0}};
  lm.encoder_tpl = {};
  lm.mtp_tpl = {};
  return lm;
}

LanguageModel::HParams language_model(const ModelParts& parts, int64_t layers) {
  TransformerBlock::HParams block = parts.block;
  block.attention_tpl = parts.other_attention;
  if (!parts.other_attention.has()) block.attention_tpl = parts.attention;
  block.ffn_tpl = feed_forward(parts);
  TransformerLm::HParams lm = parts.lm;
  lm.vocab_size = parts.sizes.vocab;
  lm.model_dims = parts.sizes.embed;
  lm.num_heads = parts.sizes.heads;
  lm.hidden_dims = parts.sizes.hidden;
  lm.num_layers = layers;
  lm.packed_input = parts.is_packed;
  lm.params_init = WeightInit{InitKind::kGaussian, 0.2};
  if (parts.has_encoder) add_encoder(parts, block, lm);
  if (lm.mtp_tpl.has()) lm.mtp_tpl.as<MultiTokenPrediction::HParams>().block_tpl = block;
  if (parts.is_repeated) {
    lm.stacked_transformer_tpl = Repeated::HParams{.block_tpl = block};
  } else {
    lm.stacked_transformer_tpl = StackedTransformer::HParams{.block_tpl = block};
  }
  if (parts.is_tied) {
    lm.softmax_tpl = SharedEmbeddingSoftmax::HParams{.scale_sqrt_depth = parts.has_scaled_table,
                                                     .multiplier = parts.table_multiplier,
                                                     .use_bias = parts.has_scaled_table,
                                                     .loss = parts.loss};
  } else {
    lm.separate_embedding_tpl = Embedding::HParams{.scale_sqrt_depth = parts.has_scaled_table,
                                                   .multiplier = parts.table_multiplier};
    lm.softmax_tpl = FullSoftmax::HParams{.use_bias = parts.has_scaled_table, .loss = parts.loss};
  }
  LanguageModel::HParams model{.lm_tpl = lm, .teacher_weight = 0.3, .teacher_temperature = 2.0};
  if (parts.has_teacher) model.teacher_tpl = teacher(parts, lm);
  return model;
}

int64_t microbatches_of(const Composition& composition, const ModelParts& parts) {
  const int64_t batch = parts.sizes.batch, stages = composition.stages;
  int64_t count = stages > 1 ? stages : parts.microbatches == Microbatches::kFewest ? 1 : 2;
  switch (parts.microbatches) {
    case Microbatches::kFewest:
    case Microbatches::kFew:
      return count;
    case Microbatches::kMany:
      for (int64_t many = 2 * count; many <= batch; many += count)
        if (batch % many == 0) return many;
      return count;
    case Microbatches::kUneven:
      ++count;
      while (batch % count != 0) ++count;
      // A pipeline of one microbatch differentiates the sum over tokens, one device their mean,
      // which is rounded to other 8-bit floats.
      return stages > 1 && count % stages == 0 && !composition.has("fp8") ? 1 : count;
  }
  return count;
}

// The layers of each piece, if they are not equally many: the pieces with one more are drawn.
std::vector<int64_t> layers_of_pieces(const Composition& composition) {
  const int64_t pieces = composition.stages * schedule(composition.schedule).chunks;
  const int64_t layers = composition.layers, more = layers % pieces;
  if (more == 0) return {};
  std::vector<int64_t> counts(static_cast<size_t>(pieces), layers / pieces);
  for (int64_t i = 0; i < more; ++i) ++counts[static_cast<size_t>(i)];
  Chance(composition.seed).shuffle(counts);
  return counts;
}

// Paths of this many weights, chosen by chance, as regular expressions.
std::vector<std::string> frozen_paths(const SingleTask::HParams& task, int64_t count,
                                      Chance& chance) {
  std::vector<std::string> paths;
  const std::unique_ptr<BaseTask> made = Template<BaseTask>(task).instantiate();
  for (const Parameter& each : made->model().parameters().parameters()) paths.push_back(each.path);
  chance.shuffle(paths);
  paths.resize(static_cast<size_t>(std::min<int64_t>(count, std::ssize(paths) - 1)));
  for (std::string& path : paths) {
    std::string pattern;
    for (const char c : path)
      pattern += std::isalnum(c) != 0 ? std::string(1, c) : std::string(".");
    path = pattern;
  }
  return paths;
}

HostArray array_of(const CompositionSizes& sizes, DType dtype, const std::string& seq = "seq") {
  const int64_t length = seq == "seq" ? sizes.seq : sizes.seq / 2;
  HostArray array{dtype, {"batch", seq}, {sizes.batch, length}, {}};
  array.bytes.resize(static_cast<size_t>(sizes.batch * length * dtype_bytes(dtype)));
  return array;
}

// The encoder's tokens of a row: documents of equal length with the ids of the decoder's.
void fill_encoder_row(Chance& chance, const CompositionModel& model, int64_t row, int64_t documents,
                      Batch& batch) {
  const int64_t length = model.parts.sizes.seq / 2;
  const int64_t end = model.parts.has_padding ? length - chance.below(length) : length;
  for (int64_t i = 0; i < end; ++i) {
    const auto at = [&](const char* name) -> int32_t& {
      return batch.at(name).data<int32_t>()[row * length + i];
    };
    const int64_t document = i * documents / length;
    at("encoder_ids") = static_cast<int32_t>(chance.below(model.parts.sizes.vocab));
    at("encoder_segment_ids") = static_cast<int32_t>(document + 1);
    at("encoder_segment_pos") =
        static_cast<int32_t>(i - (document * length + documents - 1) / documents);
  }
}

// Fills a row: documents, each with its own rule for the next token. The first tokens of all rows
// differ, so that experts never choose between tokens with equal scores.
// Returns the number of documents.
int64_t fill_row(Chance& chance, const CompositionModel& model, int64_t row, Batch& batch) {
  const CompositionSizes& sizes = model.parts.sizes;
  const int64_t end = model.parts.has_padding ? sizes.seq - chance.below(sizes.seq) : sizes.seq;
  const auto at = [&](const char* name, int64_t i) -> int32_t& {
    return batch.at(name).data<int32_t>()[row * sizes.seq + i];
  };
  int64_t token = row, segment = 1;
  for (int64_t i = 0, position = 0; i < end; ++i, ++position) {
    if (model.parts.is_packed && position > 1 && chance.one_in(3)) {
      ++segment;
      position = 0;
      token = chance.below(sizes.vocab);
    }
    at("ids", i) = static_cast<int32_t>(token);
    token = (token * 5 + 1 + chance.below(2)) % sizes.vocab;
    at("labels", i) = static_cast<int32_t>(token);
    at("segment_ids", i) = static_cast<int32_t>(segment);
    at("segment_pos", i) = static_cast<int32_t>(position);
    at("token_type_ids", i) = static_cast<int32_t>(segment % 2);
    float& weight = batch.at("weights").data<float>()[row * sizes.seq + i];
    weight = model.parts.has_token_weights ? 0.25f * static_cast<float>(chance.below(5)) : 1.0f;
  }
  return segment;
}

}  // namespace

Batch CompositionModel::batch(int64_t step) const {
  const CompositionSizes& sizes = parts.sizes;
  Batch batch{{"weights", array_of(sizes, DType::kF32)}};
  for (const char* const name : {"ids", "labels", "segment_ids", "segment_pos", "token_type_ids"})
    batch[name] = array_of(sizes, DType::kI32);
  Chance chance(seed * 31 + static_cast<uint32_t>(step) + 17);
  for (const char* const name : {"encoder_ids", "encoder_segment_ids", "encoder_segment_pos"})
    batch[name] = array_of(sizes, DType::kI32, "encoder_seq");
  for (int64_t row = 0; row < sizes.batch; ++row) {
    const int64_t documents = fill_row(chance, *this, row, batch);
    if (parts.has_encoder) fill_encoder_row(chance, *this, row, documents, batch);
  }
  return batch;
}

CompositionModel model_of(const Composition& composition, Place place,
                          const std::optional<CompositionSizes>& sizes) {
  ModelParts parts = base_parts(sizes.value_or(sizes_of(composition)));
  for (const std::string& name : composition.features) {
    // Each feature draws from its own numbers, whatever others there are.
    Chance chance(composition.seed ^ crc32c(std::as_bytes(std::span(name))));
    feature(name).apply(parts, chance);
  }
  if (place == Place::kOneDevice) parts.loss.chunk_tokens = 0;  // The whole loss at once.
  SingleTask::HParams task = parts.task;
  task.model = language_model(parts, composition.layers);
  Chance chance(composition.seed);
  if (parts.frozen > 0)
    task.learner.bprop_variable_exclusion = frozen_paths(task, parts.frozen, chance);
  task.train.num_microbatches = microbatches_of(composition, parts);
  CompositionModel model{.task = std::move(task),
                         .mesh = Mesh::standard({1, 1, 1}),
                         .parts = parts,
                         .seed = composition.seed};
  if (place == Place::kOneDevice) return model;
  model.mesh = mesh_of(composition);
  model.rules = rules_of(composition, parts);
  if (composition.stages > 1) {
    model.task.train.pipeline_schedule = schedule(composition.schedule).schedule;
    model.task.train.layers_per_piece = layers_of_pieces(composition);
  }
  return model;
}

Batch specification_of(Batch batch) {
  for (auto& [name, array] : batch) array.bytes.clear();
  return batch;
}

}  // namespace tessera
