// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/layered_lm.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/hparams/tree.h"
#include "layers/attention/gated_delta_net.h"
#include "layers/attention/latent_attention.h"
#include "layers/embeddings/embedding_softmax.h"

namespace tessera {
namespace {

template <typename T>
T resolved_copy(const T& value) {
  const Tree tree = resolved(to_tree(value));
  T copy;
  from_tree(TreeReader{tree, "lm_tpl"}, copy);
  return copy;
}

// Sets fields whose default depends on others, so that an unset field equals that value.
void set_dependent_fields(Template<SequenceLayer>& attention_tpl) {
  if (attention_tpl.holds<DotProductAttention::HParams>()) {
    auto& p = attention_tpl.as<DotProductAttention::HParams>();
    const int64_t heads = std::max<int64_t>(1, p.num_heads.get());  // The layer refuses less.
    p.num_kv_heads = p.num_kv_heads.get_or(heads);
    p.dims_per_head = p.dims_per_head.get_or(p.model_dims.get() / heads);
    p.use_output_bias = p.use_output_bias.get_or(p.use_bias);
    if (!p.use_per_dim_scale)
      p.query_scale =
          p.query_scale.get_or(1.0 / std::sqrt(static_cast<double>(p.dims_per_head.get())));
  } else if (attention_tpl.holds<LatentAttention::HParams>()) {
    auto& p = attention_tpl.as<LatentAttention::HParams>();
    const int64_t heads = std::max<int64_t>(1, p.num_heads.get());
    p.dims_per_head = p.dims_per_head.get_or(p.model_dims.get() / heads);
    p.value_dims_per_head = p.value_dims_per_head.get_or(p.dims_per_head.get());
    p.query_scale = p.query_scale.get_or(
        1.0 / std::sqrt(static_cast<double>(p.dims_per_head.get() + p.rope_dims)));
  } else if (attention_tpl.holds<GatedDeltaNet::HParams>()) {
    auto& p = attention_tpl.as<GatedDeltaNet::HParams>();
    const int64_t heads = std::max<int64_t>(1, p.num_heads.get());
    p.num_kv_heads = p.num_kv_heads.get_or(heads);
    p.dims_per_head = p.dims_per_head.get_or(p.model_dims.get() / heads);
    p.value_dims_per_head = p.value_dims_per_head.get_or(p.dims_per_head.get());
  }
}

// The number of heads of attention, in the first layer that has any.
void set_num_heads(LayeredLm* model) {
  for (const TransformerBlock::HParams& layer : model->layers) {
    const Template<SequenceLayer>& attention_tpl = layer.attention_tpl;
    if (attention_tpl.holds<DotProductAttention::HParams>())
      model->lm.num_heads = attention_tpl.as<DotProductAttention::HParams>().num_heads;
    else if (attention_tpl.holds<LatentAttention::HParams>())
      model->lm.num_heads = attention_tpl.as<LatentAttention::HParams>().num_heads;
    else
      continue;
    return;
  }
}

// The number of heads is that of the layers, and a head with a matrix of its own is a FullSoftmax
// even if it is stored as a table.
void set_equivalent_fields(LayeredLm* model) {
  for (auto* const list : {&model->layers, &model->encoder.layers})
    for (TransformerBlock::HParams& layer : *list)
      for (auto* const each : {&layer.attention_tpl, &layer.cross_attention_tpl})
        set_dependent_fields(*each);
  set_num_heads(model);
  TransformerLm::HParams& lm = model->lm;
  if (!lm.separate_embedding_tpl.has() || !lm.softmax_tpl.holds<SharedEmbeddingSoftmax::HParams>())
    return;
  const auto& shared = lm.softmax_tpl.as<SharedEmbeddingSoftmax::HParams>();
  lm.softmax_tpl = FullSoftmax::HParams{.vocab_size = shared.vocab_size,
                                        .model_dims = shared.model_dims,
                                        .use_bias = shared.use_bias,
                                        .loss = shared.loss,
                                        .layer = shared.layer};
}

void list_layers(const Template<SequenceLayer>& layer_tpl, const std::string& path, int64_t index,
                 LayerList* into) {
  if (layer_tpl.holds<TransformerBlock::HParams>()) {
    into->layers.push_back(layer_tpl.as<TransformerBlock::HParams>());
    into->places.push_back({path + ".", index});
  } else if (layer_tpl.holds<StackedTransformer::HParams>()) {
    const auto& stack = layer_tpl.as<StackedTransformer::HParams>();
    for (int64_t i = 0; i < stack.num_layers.get(); ++i)
      list_layers(stack.block_tpl, fmt::format("{}.x_layers[{}]", path, i), index, into);
  } else if (layer_tpl.holds<Repeated::HParams>() && index < 0) {
    const auto& stack = layer_tpl.as<Repeated::HParams>();
    for (int64_t i = 0; i < stack.num_layers.get(); ++i)
      list_layers(stack.block_tpl, path + ".x_layers[]", i, into);
  } else if (layer_tpl.holds<LayerSequence::HParams>()) {
    const auto& parts = layer_tpl.as<LayerSequence::HParams>().layers_tpl;
    for (size_t i = 0; i < parts.size(); ++i)
      list_layers(parts[i], fmt::format("{}.part{}", path, i), index, into);
  } else {
    fail("{} is {}, expected TransformerBlock, StackedTransformer, Repeated or LayerSequence", path,
         layer_tpl.has() ? layer_tpl.name() : "unset");
  }
}

// Blocks of a model that are equal have one number.
std::vector<int64_t> kinds_of(const std::vector<TransformerBlock::HParams>& layers) {
  std::vector<Tree> known;
  std::vector<int64_t> kinds;
  for (const TransformerBlock::HParams& layer : layers) {
    Tree tree = to_tree(layer);
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const Tree& each) { return same_value(each, tree); });
    kinds.push_back(found - known.begin());
    if (found == known.end()) known.push_back(std::move(tree));
  }
  return kinds;
}

// Layers [0, first) and [end, …) stand alone; between them a pattern of `period` layers repeats.
struct Pattern {
  int64_t first = 0, period = 1, end = 0;
};

Pattern pattern_of(const std::vector<int64_t>& kinds) {
  const auto count = static_cast<int64_t>(kinds.size());
  const auto kind = [&](int64_t i) { return kinds[static_cast<size_t>(i)]; };
  Pattern best{.first = count, .end = count};  // None.
  int64_t fewest = count;                      // Blocks that are traced.
  for (int64_t period = 1; period <= count / 2; ++period) {
    int64_t first = count - period;
    while (first > 0 && kind(first - 1) == kind(first - 1 + period)) --first;
    const int64_t end = count - (count - first) % period;
    const int64_t traced = first + period + (count - end);
    if (end - first < 2 * period || traced >= fewest) continue;
    best = {first, period, end};
    fewest = traced;
  }
  return best;
}

class StackBuilder {
 public:
  StackBuilder(const LayerList& list, StackStyle style)
      : layers_(list.layers), kinds_(kinds_of(list.layers)), style_(style) {}

  Template<SequenceLayer> build() {
    const auto count = static_cast<int64_t>(layers_.size());
    if (style_ == StackStyle::kUnrolled || count == 1) {
      add_runs(0, count);
    } else {
      const Pattern pattern = pattern_of(kinds_);
      add_runs(0, pattern.first);
      if (pattern.end > pattern.first) add_repeated(pattern);
      add_runs(pattern.end, count);
    }
    if (parts_.layers_tpl.size() == 1) return parts_.layers_tpl[0];
    return parts_;
  }

 private:
  const TransformerBlock::HParams& layer(int64_t i) const {
    return layers_[static_cast<size_t>(i)];
  }
  // Equal layers in a row are one StackedTransformer.
  void add_runs(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      int64_t next = i + 1;
      while (next < end && kinds_[static_cast<size_t>(next)] == kinds_[static_cast<size_t>(i)])
        ++next;
      parts_.layers_tpl.push_back(
          StackedTransformer::HParams{.num_layers = next - i, .block_tpl = layer(i)});
      i = next;
    }
  }
  void add_repeated(const Pattern& pattern) {
    Repeated::HParams repeated{.num_layers = (pattern.end - pattern.first) / pattern.period};
    if (pattern.period == 1) {
      repeated.block_tpl = layer(pattern.first);
    } else {
      LayerSequence::HParams period;
      for (int64_t i = 0; i < pattern.period; ++i)
        period.layers_tpl.push_back(layer(pattern.first + i));
      repeated.block_tpl = period;
    }
    parts_.layers_tpl.push_back(repeated);
  }

  const std::vector<TransformerBlock::HParams>& layers_;
  std::vector<int64_t> kinds_;
  StackStyle style_;
  LayerSequence::HParams parts_;
};

// Settings without effect on logits, or only on how equivalent weights are stored. Sizes of the
// whole model are compared where layers have inherited them.
constexpr std::string_view kIgnoredSettings[] = {
    // Dtypes, layouts and initial weights.
    "dtypes", "params_init", "rules", "query_init", "output_init", "down_init",
    "last_two_axes_fans",
    // Training.
    "dropout_rate", "embedding_dropout_rate", "residual_dropout_rate", "jitter",
    "load_balance_weight", "load_balance_scope", "load_balance_first_choices", "z_loss_weight",
    "label_smoothing", "z_loss", "focal_gamma", "chunk_tokens", "packed_input", "segment_positions",
    "mtp_tpl",
    // Storage.
    "combine_qkv", "direct_scale", "interleaved", "max_positions", "stacked_transformer_tpl",
    "num_layers"};

// Sizes that layers have from the whole model.
bool is_inherited(std::string_view name, std::string_view path) {
  return !path.empty() && (name == "vocab_size" || name == "model_dims");
}

bool is_feature_flag(std::string_view name) {
  return name == "use_bias" || name == "use_output_bias" || name == "use_scale";
}

std::string text_of(const Tree& tree) {
  if (!tree.is_set()) return "unset";
  if (tree.is_table()) return tree.class_name;
  return tree.kind == Tree::Kind::kString ? tree.text : tree.value_text();
}

class Comparison {
 public:
  Comparison(Missing missing, std::vector<SettingDifference>* into)
      : missing_(missing), into_(into) {}

  void compare(const Tree& a, const Tree& b, const std::string& path, std::string_view name) {
    const bool are_tables = a.is_table() && b.is_table() && a.class_name == b.class_name;
    if (are_tables) return compare_members(a, b, path);
    if (!are_equal(a, b, name)) into_->push_back({path, text_of(a), text_of(b), {}});
  }

 private:
  void compare_members(const Tree& a, const Tree& b, const std::string& path) {
    for (size_t i = 0; i < a.keys.size(); ++i) {
      const std::string& key = a.keys[i];
      const bool is_ignored =
          std::ranges::find(kIgnoredSettings, key) != std::end(kIgnoredSettings);
      if (is_ignored || is_inherited(key, path)) continue;
      const Tree* other = b.find(key);
      CHECK(other != nullptr, "{} lacks {}", path, key);
      compare(a.items[i], *other, join_path(path, key), key);
    }
  }

  bool are_equal(const Tree& a, const Tree& b, std::string_view name) const {
    if (same_value(a, b)) return true;
    if (a.kind == Tree::Kind::kDouble && b.kind == Tree::Kind::kDouble) {
      if (name == "bias_rate") return (a.number > 0.0) == (b.number > 0.0);
      return std::abs(a.number - b.number) <= 1e-9 * std::abs(a.number);
    }
    return missing_ == Missing::kIsAllowed && is_feature_flag(name) && b.boolean && !a.boolean;
  }

  Missing missing_;
  std::vector<SettingDifference>* into_;
};

}  // namespace

Template<RotaryPositionEmbedding>* rotary_of(TransformerBlock::HParams& layer) {
  auto& attention_tpl = layer.attention_tpl;
  if (attention_tpl.holds<DotProductAttention::HParams>())
    return &attention_tpl.as<DotProductAttention::HParams>().rotary_tpl;
  if (attention_tpl.holds<LatentAttention::HParams>())
    return &attention_tpl.as<LatentAttention::HParams>().rotary_tpl;
  return nullptr;
}

LayeredLm layers_of(const Template<TransformerLm>& lm_tpl) {
  LayeredLm model;
  model.lm = resolved_copy(lm_tpl).as<TransformerLm::HParams>();
  list_layers(model.lm.stacked_transformer_tpl, "transformer", -1, &model);
  if (model.lm.encoder_tpl.has())
    list_layers(model.lm.encoder_tpl.as<TransformerEncoder::HParams>().stacked_transformer_tpl,
                "encoder.transformer", -1, &model.encoder);
  set_equivalent_fields(&model);
  return model;
}

TransformerLm::HParams stacked(const LayeredLm& model, StackStyle style) {
  TransformerLm::HParams lm = model.lm;
  lm.num_layers = static_cast<int64_t>(model.layers.size());
  lm.stacked_transformer_tpl = StackBuilder(model, style).build();
  if (!lm.encoder_tpl.has()) return lm;
  auto& encoder = lm.encoder_tpl.as<TransformerEncoder::HParams>();
  encoder.num_layers = static_cast<int64_t>(model.encoder.layers.size());
  encoder.stacked_transformer_tpl = StackBuilder(model.encoder, style).build();
  return lm;
}

std::string SettingDifference::name(int64_t num_layers) const {
  if (layers.empty() || static_cast<int64_t>(layers.size()) == num_layers) return path;
  return fmt::format("{} of layer{} {}", path, layers.size() > 1 ? "s" : "",
                     fmt::join(layers, ", "));
}

namespace {

// Adds the differences of two lists of layers, whose paths begin with `prefix`.
void add_differences(const LayerList& first, const LayerList& second, Missing missing,
                     const std::string& prefix, std::vector<SettingDifference>* found) {
  const size_t a = first.layers.size(), b = second.layers.size();
  if (a != b) {
    found->push_back({prefix + "num_layers", std::to_string(a), std::to_string(b), {}});
    return;
  }
  std::map<std::string, size_t> places;  // Where a difference of several layers is.
  for (size_t i = 0; i < a; ++i) {
    std::vector<SettingDifference> of_layer;
    Comparison(missing, &of_layer)
        .compare(to_tree(first.layers[i]), to_tree(second.layers[i]), "", "");
    for (SettingDifference& each : of_layer) {
      each.path = prefix + each.path;
      const std::string key = fmt::format("{}\n{}\n{}", each.path, each.first, each.second);
      const auto [at, is_new] = places.try_emplace(key, found->size());
      if (is_new) found->push_back(std::move(each));
      (*found)[at->second].layers.push_back(static_cast<int64_t>(i));
    }
  }
}

}  // namespace

std::vector<SettingDifference> differences(const LayeredLm& first, const LayeredLm& second,
                                           Missing missing) {
  std::vector<SettingDifference> found;
  Tree a = to_tree(first.lm), b = to_tree(second.lm);
  // Layers have their own values of these.
  for (const char* name : {"num_heads", "hidden_dims"})
    for (Tree* tree : {&a, &b}) tree->add(name, Tree::of(int64_t{0}));
  Comparison(missing, &found).compare(a, b, "", "");
  add_differences(first, second, missing, "", &found);
  add_differences(first.encoder, second.encoder, missing, "encoder_tpl.", &found);
  return found;
}

}  // namespace tessera
