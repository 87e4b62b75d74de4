// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ranges>
#include <span>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "tasks/task/base_task.h"

namespace tessera {
namespace {

constexpr double kNoFill = std::numeric_limits<double>::quiet_NaN();

// Which models have a tensor.
using Condition = bool (*)(const HfConfig&);
constexpr Condition kAlways = [](const HfConfig&) { return true; };
constexpr Condition kUntied = [](const HfConfig& config) { return !config.tied; };
constexpr Condition kAttentionBias = [](const HfConfig& config) { return config.attention_bias; };
constexpr Condition kDense = [](const HfConfig& config) { return config.num_experts == 0; };
constexpr Condition kExperts = [](const HfConfig& config) { return config.num_experts > 0; };
constexpr Condition kMlpBias = [](const HfConfig& config) { return config.mlp_bias; };

// A row of the table. `theirs` has {} for the layer's number, and a second {} if each expert of a
// layer has the tensor; then our weight has an axis experts. `axes` names the dimensions, outermost
// first. `ours` is the path of our weight, relative to the block for layers: the first of the
// alternatives a|b that the model has; for a weight with an axis qkv, the part after the colon.
// Three weights fill an axis qkv of theirs. If the model has none of the weights, the tensor is
// filled with `otherwise`.
struct WeightRow {
  std::string_view theirs, axes, ours;
  double otherwise = kNoFill;
  Condition exists = kAlways;
};

constexpr std::string_view kQuery = "attention.query|attention.qkv:0";
constexpr std::string_view kKey = "attention.key|attention.qkv:1";
constexpr std::string_view kValue = "attention.value|attention.qkv:2";
constexpr std::string_view kQueryBias = "attention.query_bias|attention.qkv_bias:0";
constexpr std::string_view kKeyBias = "attention.key_bias|attention.qkv_bias:1";
constexpr std::string_view kValueBias = "attention.value_bias|attention.qkv_bias:2";

// Weights of transformers' Conv1D have inputs first, as ours; those of Linear have them last.
constexpr std::array<WeightRow, 17> kGpt2 = {{
    {"transformer.wte.weight", "vocab, embed", "embedding.w|softmax.w"},
    {"transformer.wpe.weight", "positions, embed", "position_emb.w"},
    {"transformer.h.{}.ln_1.weight", "embed", "attention_norm.scale", 1.0},
    {"transformer.h.{}.ln_1.bias", "embed", "attention_norm.bias", 0.0},
    {"transformer.h.{}.attn.c_attn.weight", "embed, qkv heads head_dim",
     "attention.query attention.key attention.value|attention.qkv"},
    {"transformer.h.{}.attn.c_attn.bias", "qkv heads head_dim",
     "attention.query_bias attention.key_bias attention.value_bias|attention.qkv_bias", 0.0},
    {"transformer.h.{}.attn.c_proj.weight", "heads head_dim, embed", "attention.output"},
    {"transformer.h.{}.attn.c_proj.bias", "embed", "attention.output_bias", 0.0},
    {"transformer.h.{}.ln_2.weight", "embed", "ffn_norm.scale", 1.0},
    {"transformer.h.{}.ln_2.bias", "embed", "ffn_norm.bias", 0.0},
    {"transformer.h.{}.mlp.c_fc.weight", "embed, mlp", "ffn.up"},
    {"transformer.h.{}.mlp.c_fc.bias", "mlp", "ffn.up_bias", 0.0},
    {"transformer.h.{}.mlp.c_proj.weight", "mlp, embed", "ffn.down"},
    {"transformer.h.{}.mlp.c_proj.bias", "embed", "ffn.down_bias", 0.0},
    {"transformer.ln_f.weight", "embed", "final_ln.scale", 1.0},
    {"transformer.ln_f.bias", "embed", "final_ln.bias", 0.0},
    {"lm_head.weight", "vocab, embed", "softmax.w", kNoFill, kUntied},
}};

constexpr std::array<WeightRow, 23> kLlama = {{
    {"model.embed_tokens.weight", "vocab, embed", "embedding.w|softmax.w"},
    {"model.layers.{}.input_layernorm.weight", "embed", "attention_norm.scale", 1.0},
    {"model.layers.{}.self_attn.q_proj.weight", "heads head_dim, embed", kQuery},
    {"model.layers.{}.self_attn.q_proj.bias", "heads head_dim", kQueryBias, 0.0, kAttentionBias},
    {"model.layers.{}.self_attn.k_proj.weight", "kv_heads head_dim, embed", kKey},
    {"model.layers.{}.self_attn.k_proj.bias", "kv_heads head_dim", kKeyBias, 0.0, kAttentionBias},
    {"model.layers.{}.self_attn.v_proj.weight", "kv_heads head_dim, embed", kValue},
    {"model.layers.{}.self_attn.v_proj.bias", "kv_heads head_dim", kValueBias, 0.0, kAttentionBias},
    {"model.layers.{}.self_attn.o_proj.weight", "embed, heads head_dim", "attention.output"},
    {"model.layers.{}.self_attn.o_proj.bias", "embed", "attention.output_bias", 0.0,
     kAttentionBias},
    {"model.layers.{}.post_attention_layernorm.weight", "embed", "ffn_norm.scale", 1.0},
    {"model.layers.{}.mlp.gate_proj.weight", "mlp, embed", "ffn.gate", kNoFill, kDense},
    {"model.layers.{}.mlp.gate_proj.bias", "mlp", "ffn.gate_bias", 0.0, kMlpBias},
    {"model.layers.{}.mlp.up_proj.weight", "mlp, embed", "ffn.up", kNoFill, kDense},
    {"model.layers.{}.mlp.up_proj.bias", "mlp", "ffn.up_bias", 0.0, kMlpBias},
    {"model.layers.{}.mlp.down_proj.weight", "embed, mlp", "ffn.down", kNoFill, kDense},
    {"model.layers.{}.mlp.down_proj.bias", "embed", "ffn.down_bias", 0.0, kMlpBias},
    {"model.layers.{}.block_sparse_moe.gate.weight", "experts, embed", "ffn.router.w", kNoFill,
     kExperts},
    {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "mlp, embed", "ffn.gate", kNoFill,
     kExperts},
    {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "mlp, embed", "ffn.up", kNoFill,
     kExperts},
    {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "embed, mlp", "ffn.down", kNoFill,
     kExperts},
    {"model.norm.weight", "embed", "final_ln.scale", 1.0},
    {"lm_head.weight", "vocab, embed", "softmax.w", kNoFill, kUntied},
}};

std::span<const WeightRow> rows_of(HfFamily family) {
  if (family == HfFamily::kGpt2) return kGpt2;
  return kLlama;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator))
    if (!part.empty()) parts.emplace_back(part.begin(), part.end());
  return parts;
}

// Layer and expert of a tensor that each of them has; 0 for other tensors.
struct Place {
  int64_t layer = 0, expert = 0;
};

std::string with_place(std::string_view name, const Place& place) {
  std::string text(name);
  for (const int64_t number : {place.layer, place.expert})
    if (const size_t at = text.find("{}"); at != std::string::npos)
      text.replace(at, 2, std::to_string(number));
  return text;
}

int64_t size_of(const std::string& axis, const HfConfig& config) {
  const std::map<std::string, int64_t> sizes = {{"vocab", config.vocab_size},
                                                {"embed", config.model_dims},
                                                {"mlp", config.hidden_dims},
                                                {"positions", config.max_positions},
                                                {"heads", config.num_heads},
                                                {"kv_heads", config.num_kv_heads},
                                                {"head_dim", config.head_dim},
                                                {"experts", config.num_experts},
                                                {"qkv", 3}};
  return sizes.at(axis);
}

// In a fused projection the key heads are on the axis `heads`.
int64_t axis_in(const Type& type, const std::string& name) {
  const int64_t at = type.find(name);
  if (at < 0 && name == "kv_heads") return type.find("heads");
  if (at < 0 && name == "heads") return type.find("kv_heads");
  return at;
}

// One of our weights, as a row names it.
struct Ours {
  int32_t parameter = -1;
  int64_t layer = -1;   // Index in a stacked weight,
  int64_t expert = -1;  // along its axis experts,
  int64_t part = -1;    // and along its axis qkv.
};

// What the paths of the TransformerLm's weights begin with: "lm." in a LanguageModel.
std::string root_of(const ParameterTable& table) {
  for (const Parameter& each : table.parameters())
    if (const size_t at = each.path.find(".transformer."); at != std::string::npos)
      return each.path.substr(0, at + 1);
  return "";
}

class Mapper {
 public:
  Mapper(const HfModel& model, const ParameterTable& table)
      : model_(model), config_(model.config), table_(table), root_(root_of(table)) {}

  std::vector<HfTensor> tensors() {
    std::vector<HfTensor> tensors;
    const std::span<const WeightRow> rows = rows_of(config_.family);
    // Layer by layer, with all rows of a layer adjacent.
    for (size_t i = 0; i < rows.size();) {
      size_t end = i + 1;
      if (is_of_layer(rows[i]))
        while (end < rows.size() && is_of_layer(rows[end])) ++end;
      const int64_t layers = is_of_layer(rows[i]) ? config_.num_layers : 1;
      for (int64_t layer = 0; layer < layers; ++layer)
        for (size_t j = i; j < end; ++j)
          for (int64_t expert = 0; expert < copies_in_layer(rows[j]); ++expert)
            tensors.push_back(tensor(rows[j], {layer, expert}));
      i = end;
    }
    check_all_held();
    return tensors;
  }

 private:
  static bool is_of_layer(const WeightRow& row) {
    return row.theirs.find("{}") != std::string_view::npos;
  }

  static bool is_of_expert(const WeightRow& row) {
    return row.theirs.find("{}") != row.theirs.rfind("{}");
  }
  int64_t copies_in_layer(const WeightRow& row) const {
    if (!row.exists(config_)) return 0;
    return is_of_expert(row) ? config_.num_experts : 1;
  }

  Ours find(const WeightRow& row, const std::string& name, const Place& place) const {
    Ours ours;
    if (is_of_expert(row)) ours.expert = place.expert;
    std::string weight = name;
    if (const size_t colon = name.find(':'); colon != std::string::npos) {
      ours.part = std::stoll(name.substr(colon + 1));
      weight.resize(colon);
    }
    const auto& parameters = table_.parameters();
    const auto look = [&](const std::string& path) {
      const Parameter* found = table_.find(path);
      if (found == nullptr) return false;
      ours.parameter = static_cast<int32_t>(found - parameters.data());
      return true;
    };
    if (!is_of_layer(row)) {
      look(root_ + weight);
    } else if (!look(fmt::format("{}transformer.x_layers[{}].{}", root_, place.layer, weight)) &&
               !look(fmt::format("{}transformer.part{}.x_layers[0].{}", root_, place.layer,
                                 weight)) &&
               look(root_ + "transformer.x_layers[]." + weight)) {
      ours.layer = place.layer;
    }
    return ours;
  }

  // The weights that fill the tensor: one, or three for an axis qkv; none if the model has none.
  std::vector<Ours> sources(const WeightRow& row, const Place& place) const {
    for (const std::string& alternative : split(row.ours, '|')) {
      std::vector<Ours> found;
      for (const std::string& name : split(alternative, ' '))
        found.push_back(find(row, name, place));
      if (std::all_of(found.begin(), found.end(),
                      [](const Ours& each) { return each.parameter >= 0; }))
        return found;
    }
    return {};
  }

  HfTensor tensor(const WeightRow& row, const Place& place) {
    HfTensor tensor;
    tensor.name = with_place(row.theirs, place);
    int64_t elements = 1;
    std::vector<std::string> axes;
    for (const std::string& dimension : split(row.axes, ',')) {
      tensor.shape.push_back(1);
      for (const std::string& axis : split(dimension, ' ')) {
        tensor.shape.back() *= size_of(axis, config_);
        axes.push_back(axis);
      }
      elements *= tensor.shape.back();
    }
    tensor.rows = size_of(axes[0], config_);
    tensor.row_elements = elements / tensor.rows;
    tensor.constant = row.otherwise;
    const std::vector<Ours> found = sources(row, place);
    if (found.empty() && std::isnan(row.otherwise))
      fail("the model has no weight {} for the tensor '{}'", row.ours, tensor.name);
    for (size_t i = 0; i < found.size(); ++i)
      tensor.parts.push_back(part(axes, elements, found[i],
                                  found.size() > 1 ? static_cast<int64_t>(i) : -1, tensor.name));
    if (!found.empty()) tensor.offset = offset_of(table_.at(found[0].parameter).path);
    return tensor;
  }

  // `number` is the part's index along an axis qkv of theirs, or -1.
  HfPart part(const std::vector<std::string>& axes, int64_t elements, const Ours& ours,
              int64_t number, const std::string& name) {
    const Parameter& parameter = table_.at(ours.parameter);
    HfPart part;
    part.parameter = ours.parameter;
    part.begin.assign(parameter.type.axes.size(), 0);
    int64_t shared = 1;
    const auto fix = [&](std::string_view axis, int64_t index) {
      if (index >= 0) part.begin[static_cast<size_t>(parameter.type.find(axis))] = index;
    };
    fix(kLayersAxis, ours.layer);
    fix("experts", ours.expert);
    fix("qkv", ours.part);
    int64_t stride = elements;
    for (const std::string& axis : axes) {
      const int64_t size = size_of(axis, config_);
      stride /= size;
      if (axis == "qkv" && number >= 0) {
        part.steps.push_back({number, 1, stride, -1, 1});
        continue;
      }
      const int64_t at = axis_in(parameter.type, axis);
      if (at < 0 || parameter.type.axes[static_cast<size_t>(at)].size != size)
        fail("the tensor '{}' has an axis {}={}, but the weight {} is {}", name, axis, size,
             parameter.path, parameter.type.text_sized());
      shared *= size;
      if (axis == "head_dim" && is_interleaved(parameter.path, ours.part)) {
        part.steps.push_back({0, 2, stride * (size / 2), at, 1});
        part.steps.push_back({0, size / 2, stride, at, 2});
      } else {
        part.steps.push_back({0, size, stride, at, 1});
      }
    }
    held_[ours.parameter] += shared;
    return part;
  }

  // Queries and keys are rotated: separate weights, or the first two parts of a fused weight.
  bool is_interleaved(const std::string& path, int64_t part) const {
    const auto is = [&](std::string_view name) { return path.find(name) != std::string::npos; };
    const bool is_rotated = is(".attention.query") || is(".attention.key") ||
                            (is(".attention.qkv") && (part == 0 || part == 1));
    return model_.conventions.interleaved_rotary && is_rotated;
  }

  double offset_of(const std::string& path) const {
    if (!path.ends_with(".scale")) return 0.0;
    const bool is_final = path.find("final_ln") != std::string::npos;
    const HfConventions& conventions = model_.conventions;
    return (is_final ? conventions.final_scale_from_zero : conventions.block_scale_from_zero) ? 1.0
                                                                                              : 0.0;
  }

  void check_all_held() const {
    std::vector<std::string> lost;
    for (size_t i = 0; i < table_.parameters().size(); ++i) {
      const auto held = held_.find(static_cast<int32_t>(i));
      const Parameter& parameter = table_.parameters()[i];
      if (!parameter.path.starts_with(root_)) continue;
      if (held == held_.end() || held->second != parameter.type.elements())
        lost.push_back(fmt::format("{} {}", parameter.path, parameter.type.text_sized()));
    }
    if (!lost.empty())
      fail("the format of {} has no tensor for {}", enum_name(config_.family),
           fmt::join(lost, ", "));
  }

  const HfModel& model_;
  const HfConfig& config_;
  const ParameterTable& table_;
  const std::string root_;
  std::map<int32_t, int64_t> held_;  // Elements of each weight found in tensors.
};

}  // namespace

std::vector<HfTensor> hf_tensors(const HfModel& model, const ParameterTable& table) {
  return Mapper(model, table).tensors();
}

std::vector<std::string> weights_outside(const ParameterTable& table) {
  const std::string root = root_of(table);
  std::vector<std::string> others;
  for (const Parameter& each : table.parameters())
    if (!each.path.starts_with(root))
      others.push_back(fmt::format("{} {}", each.path, each.type.text_sized()));
  return others;
}

std::string export_note(const ExperimentConfig& experiment, NoteLength length) {
  try {
    const std::unique_ptr<BaseTask> task = experiment.task.instantiate();
    const ParameterTable& table = task->model().parameters();
    if (length == NoteLength::kBrief && root_of(table).empty()) return "";
    hf_tensors(hf_model_of(experiment), table);
    const std::vector<std::string> others = weights_outside(table);
    if (others.empty()) return "";
    return fmt::format("note: an export to Hugging Face leaves out {}", fmt::join(others, ", "));
  } catch (const std::exception& error) {
    const std::string all = error.what(), first = all.substr(0, all.find("; "));
    const bool is_cut = length == NoteLength::kBrief && first != all;
    return "note: cannot be exported to Hugging Face: " +
           (is_cut ? first + "; … (--describe has all reasons)" : all);
  }
}

std::string_view hf_prefix(HfFamily family) {
  return family == HfFamily::kGpt2 ? "transformer." : "model.";
}

bool is_hf_leftover(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace tessera
