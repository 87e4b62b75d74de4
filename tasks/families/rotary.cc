// SPDX-License-Identifier: Apache-2.0
// The members of rotary positions in config.json: in files of transformers 5 an object
// rope_parameters, before rope_theta with rope_scaling.
#include <cmath>
#include <optional>

#include "core/base/error.h"
#include "core/io/json.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

using Rotary = RotaryPositionEmbedding::HParams;

// Without the rounding of a product or quotient.
double rounded(double value) { return std::stod(fmt::format("{:.14g}", value)); }

double read_length(ConfigMembers& scaling, int64_t otherwise) {
  int64_t length = 0;
  scaling.size("original_max_position_embeddings", length, otherwise, ConfigMembers::kMostTokens);
  return static_cast<double>(length);
}

void read_stretch(ConfigMembers& scaling, Rotary* rotary) {
  RotaryStretchHParams stretch;
  scaling.positive("factor", stretch.factor, 1.0);
  scaling.positive("low_freq_factor", stretch.low, 1.0);
  scaling.positive("high_freq_factor", stretch.high, 4.0);
  stretch.length = read_length(scaling, 8192);
  if (stretch.low >= stretch.high)
    fail("{}: low_freq_factor {} is not below high_freq_factor {}", scaling.where(), stretch.low,
         stretch.high);
  if (stretch.factor != 1.0) rotary->stretch = stretch;
}

// YaRN's factor of queries and keys, as transformers and DeepSeek define it.
double attention_factor(double factor, double multiplier) {
  return factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(factor) + 1.0;
}

// `of_all`: mscale_all_dim, which DeepSeek's scores are also multiplied by.
void read_yarn(ConfigMembers& scaling, Rotary* rotary, double* of_all) {
  RotaryYarnHParams yarn;
  yarn.length = read_length(scaling, rotary->max_positions.get());
  scaling.positive("factor", yarn.factor,
                   static_cast<double>(rotary->max_positions.get()) / yarn.length);
  scaling.positive("beta_fast", yarn.fast, 32.0);
  scaling.positive("beta_slow", yarn.slow, 1.0);
  scaling.flag("truncate", yarn.whole_pairs, true);
  double multiplier = 0.0;
  scaling.not_negative("mscale", multiplier, 0.0);
  scaling.not_negative("mscale_all_dim", *of_all, 0.0);
  double scale = attention_factor(yarn.factor, 1.0);
  if (multiplier > 0.0 && *of_all > 0.0)
    scale = attention_factor(yarn.factor, multiplier) / attention_factor(yarn.factor, *of_all);
  scaling.positive("attention_factor", scale, scale);
  rotary->yarn = yarn;
  rotary->output_scale = scale;
}

void read_long(ConfigMembers& scaling, Rotary* rotary, int64_t original) {
  RotaryLongHParams sequences;
  sequences.length = read_length(scaling, original);
  scaling.reals("short_factor", sequences.short_divisors);
  scaling.reals("long_factor", sequences.long_divisors);
  double factor = 0.0;
  const auto longest = static_cast<double>(rotary->max_positions.get());
  scaling.positive("factor", factor, longest / sequences.length);
  const double scale =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(sequences.length));
  scaling.positive("attention_factor", rotary->output_scale, scale);
  rotary->long_sequences = std::move(sequences);
}

void read_scaling(ConfigMembers& scaling, Rotary* rotary, double theta, int64_t original,
                  double* of_all) {
  std::string type, before;
  scaling.text("type", before, "default");  // The name in old files.
  scaling.text("rope_type", type, before);
  if (type == "linear") {
    scaling.positive("factor", rotary->min_timescale, 1.0);
  } else if (type == "llama3") {
    read_stretch(scaling, rotary);
  } else if (type == "yarn") {
    read_yarn(scaling, rotary, of_all);
  } else if (type == "longrope" || type == "su") {  // The name in old files.
    read_long(scaling, rotary, original);
  } else if (type == "dynamic") {
    RotaryDynamicHParams dynamic{.length = static_cast<double>(rotary->max_positions.get())};
    scaling.positive("factor", dynamic.factor, 1.0);
    rotary->dynamic = dynamic;
  } else if (type != "default") {
    fail("{} has type '{}', expected default, linear, dynamic, llama3, yarn or longrope",
         scaling.where(), type);
  }
  rotary->max_timescale = rotary->min_timescale * theta;
}

// rope_parameters of one kind of layers, or of all.
const Json& of_layer_type(const Json& json, std::string_view layer_type) {
  if (const Json* of_type = layer_type.empty() ? nullptr : json.find(layer_type)) return *of_type;
  for (const auto& [name, value] : json.as_object())
    if (value.is_object())
      fail("{}: a rotation for each kind of layer is not supported", json.where());
  return json;
}

// Returns mscale_all_dim, or 0.
double read_rotary(ConfigMembers& config, Rotary* rotary, const RotaryDefaults& defaults) {
  double of_all = 0.0;
  double theta = defaults.theta;
  config.positive(defaults.theta_name, theta, defaults.theta);
  config.positive(defaults.share_name, rotary->rotary_share, defaults.share);
  rotary->max_timescale = theta;
  for (const std::string_view name : {"rope_scaling", "rope_parameters"}) {
    if (name == "rope_scaling" && !defaults.has_scaling) continue;
    const Json* found = config.find(name);
    if (found == nullptr) continue;
    ConfigMembers scaling(of_layer_type(*found, defaults.layer_type));
    scaling.positive("rope_theta", theta, theta);
    scaling.positive("partial_rotary_factor", rotary->rotary_share, rotary->rotary_share);
    int64_t original = rotary->max_positions.get();  // Phi's files have it beside the object.
    config.size("original_max_position_embeddings", original, original, ConfigMembers::kMostTokens);
    read_scaling(scaling, rotary, theta, original, &of_all);
    if (const auto unread = scaling.unread(); !unread.empty())
      fail("{}: '{}' is not known for this type", scaling.where(), unread[0]);
  }
  return of_all;
}

// The multiplier of which this is the attention factor.
double multiplier_of(double attention_factor, double factor) {
  return rounded((attention_factor - 1.0) / (0.1 * std::log(factor)));
}

// The object rope_scaling, or nothing. `of_scores`: the root of DeepSeek's factor of scores, or 1.
std::optional<ConfigMembers> written_scaling(const Rotary& rotary, double of_scores) {
  ConfigMembers scaling;
  const auto number = [&](const char* name, double value) {
    scaling.add(name, ConfigMembers::number_text(value));
  };
  if (rotary.min_timescale != 1.0) {
    scaling.add("rope_type", "\"linear\"");
    number("factor", rotary.min_timescale);
  } else if (rotary.stretch && rotary.stretch->factor != 1.0) {
    scaling.add("rope_type", "\"llama3\"");
    number("factor", rotary.stretch->factor);
    number("low_freq_factor", rotary.stretch->low);
    number("high_freq_factor", rotary.stretch->high);
    scaling.add("original_max_position_embeddings",
                std::to_string(std::llround(rotary.stretch->length)));
  } else if (rotary.dynamic) {
    scaling.add("rope_type", "\"dynamic\"");
    number("factor", rotary.dynamic->factor);
  } else if (rotary.yarn) {
    scaling.add("rope_type", "\"yarn\"");
    number("factor", rotary.yarn->factor);
    number("beta_fast", rotary.yarn->fast);
    number("beta_slow", rotary.yarn->slow);
    if (of_scores != 1.0) {
      number("mscale", multiplier_of(rotary.output_scale * of_scores, rotary.yarn->factor));
      number("mscale_all_dim", multiplier_of(of_scores, rotary.yarn->factor));
    } else {
      number("attention_factor", rotary.output_scale);
    }
    scaling.add("truncate", fmt::format("{}", rotary.yarn->whole_pairs));
    scaling.add("original_max_position_embeddings",
                std::to_string(std::llround(rotary.yarn->length)));
  } else if (rotary.long_sequences) {
    scaling.add("rope_type", "\"longrope\"");
    scaling.add("short_factor",
                json_list(rotary.long_sequences->short_divisors, ConfigMembers::number_text));
    scaling.add("long_factor",
                json_list(rotary.long_sequences->long_divisors, ConfigMembers::number_text));
    number("attention_factor", rotary.output_scale);
    scaling.add("original_max_position_embeddings",
                std::to_string(std::llround(rotary.long_sequences->length)));
  } else {
    return {};
  }
  return scaling;
}

void write_rotary(ConfigMembers& config, const Rotary& rotary, const RotaryDefaults& defaults,
                  double of_scores = 1.0) {
  config.add(defaults.theta_name,
             ConfigMembers::number_text(rounded(rotary.max_timescale / rotary.min_timescale)));
  if (rotary.rotary_share != 1.0 || defaults.share != 1.0)
    config.add(defaults.share_name, ConfigMembers::number_text(rotary.rotary_share));
  if (!defaults.has_scaling) return;
  const std::optional<ConfigMembers> scaling = written_scaling(rotary, of_scores);
  config.add("rope_scaling", scaling ? scaling->object() : "null");
}

}  // namespace

void bind_rotary(ConfigMembers& config, DotProductAttention::HParams& attention,
                 const RotaryDefaults& defaults) {
  auto& rotary = config.part<Rotary>(attention.rotary_tpl, "attention_tpl.rotary_tpl");
  config.size("max_position_embeddings", rotary.max_positions, defaults.max_positions,
              ConfigMembers::kMostTokens);
  if (!config.reads()) return write_rotary(config, rotary, defaults);
  read_rotary(config, &rotary, defaults);
  const auto head_dim = static_cast<double>(attention.dims_per_head.get());
  const auto dims = static_cast<int64_t>(head_dim * rotary.rotary_share);
  if (dims % 2 != 0)
    fail("{}: {} of head_dim={} are rotated, an odd number; they are rotated in pairs",
         config.where(), dims, attention.dims_per_head.get());
  if (!rotary.long_sequences) return;
  for (const auto& divisors :
       {rotary.long_sequences->short_divisors, rotary.long_sequences->long_divisors})
    if (std::ssize(divisors) != dims / 2)
      fail(
          "{}: short_factor and long_factor have {} and {} numbers, expected one for each of {} "
          "pairs",
          config.where(), rotary.long_sequences->short_divisors.size(),
          rotary.long_sequences->long_divisors.size(), dims / 2);
}

namespace {

// The rotary positions of the first layer with a window, or without one; nullptr if there is no
// such layer.
const Rotary* first_rotary(const LayeredLm& model, bool slides) {
  for (const TransformerBlock::HParams& layer : model.layers) {
    const auto& attention = layer.attention_tpl.as<DotProductAttention::HParams>();
    if (attention.window.has() == slides && attention.rotary_tpl.holds<Rotary>())
      return &attention.rotary_tpl.as<Rotary>();
  }
  return nullptr;
}

// As one entry of rope_parameters.
std::string rotary_object(const Rotary& rotary) {
  ConfigMembers members = written_scaling(rotary, 1.0).value_or(ConfigMembers());
  members.add("rope_type", "\"default\"");  // Unless it has one.
  members.add("rope_theta",
              ConfigMembers::number_text(rounded(rotary.max_timescale / rotary.min_timescale)));
  members.add("partial_rotary_factor", ConfigMembers::number_text(rotary.rotary_share));
  return members.object();
}

// Whether the names before version 5 of transformers can say how the two kinds of layers differ.
bool has_old_form(const Rotary& sliding, const Rotary& full, bool has_own_theta) {
  const auto theta = [](const Rotary& rotary) {
    return rounded(rotary.max_timescale / rotary.min_timescale);
  };
  return !written_scaling(sliding, 1.0) && sliding.rotary_share == 1.0 &&
         full.rotary_share == 1.0 && (has_own_theta || theta(sliding) == theta(full));
}

}  // namespace

void bind_rotary_by_type(ConfigMembers& config, LayeredLm& model, RotaryDefaults sliding,
                         RotaryDefaults full) {
  sliding.layer_type = kSlidingAttention;
  sliding.has_scaling = false;
  full.layer_type = kFullAttention;
  const Rotary* const first_sliding = config.reads() ? nullptr : first_rotary(model, true);
  const Rotary* first_full = config.reads() ? nullptr : first_rotary(model, false);
  if (first_full == nullptr) first_full = first_sliding;  // All layers have a window.
  const bool has_own_theta = sliding.theta_name != full.theta_name;
  if (first_sliding != nullptr && (!has_old_form(*first_sliding, *first_full, has_own_theta) ||
                                   (!full.has_scaling && written_scaling(*first_full, 1.0)))) {
    config.add("max_position_embeddings", std::to_string(first_full->max_positions.get()));
    return config.add("rope_parameters", fmt::format(R"({{"{}": {}, "{}": {}}})", kSlidingAttention,
                                                     rotary_object(*first_sliding), kFullAttention,
                                                     rotary_object(*first_full)));
  }
  for (TransformerBlock::HParams& layer : model.layers) {
    auto& attention = attention_in(layer);
    bind_rotary(config, attention, attention.window.has() ? sliding : full);
  }
  config.ignore({"rope_scaling", "rope_parameters", "rope_theta"});
}

void bind_latent_rotary(ConfigMembers& config, LatentAttention::HParams& attention,
                        const RotaryDefaults& defaults) {
  auto& rotary = config.part<Rotary>(attention.rotary_tpl, "attention_tpl.rotary_tpl");
  config.size("max_position_embeddings", rotary.max_positions, defaults.max_positions,
              ConfigMembers::kMostTokens);
  const auto dims = static_cast<double>(attention.dims_per_head.get_or(1) + attention.rope_dims);
  if (!config.reads()) {
    const double of_scores = std::sqrt(attention.query_scale.get_or(1.0) * std::sqrt(dims));
    const bool is_plain = std::abs(of_scores - 1.0) < 1e-9 || !rotary.yarn;
    return write_rotary(config, rotary, defaults, is_plain ? 1.0 : of_scores);
  }
  rotary.interleaved = true;
  const double of_all = read_rotary(config, &rotary, defaults);
  if (attention.rope_dims % 2 != 0)
    fail("{}: qk_rope_head_dim={} is odd; they are rotated in pairs", config.where(),
         attention.rope_dims);
  if (!rotary.yarn || of_all == 0.0) return;
  const double of_scores = attention_factor(rotary.yarn->factor, of_all);
  attention.query_scale = of_scores * of_scores / std::sqrt(dims);
}

}  // namespace tessera
