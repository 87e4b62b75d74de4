// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/hf_config.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/io/json.h"

namespace tessera {
namespace {

// Upper bound of sizes: products of three still fit in 64 bits.
constexpr int64_t kMostTokens = int64_t{1} << 31;
constexpr int64_t kMostDims = 1 << 20;
constexpr int64_t kMostLayers = 4096;

// The names of sizes and numbers in config.json. Mixtral has those of Llama.
struct Names {
  std::string_view gpt2, llama;
  std::string_view of(HfFamily family) const { return family == HfFamily::kGpt2 ? gpt2 : llama; }
};
constexpr Names kVocabSize = {"vocab_size", "vocab_size"};
constexpr Names kModelDims = {"n_embd", "hidden_size"};
constexpr Names kNumLayers = {"n_layer", "num_hidden_layers"};
constexpr Names kNumHeads = {"n_head", "num_attention_heads"};
constexpr Names kNumKvHeads = {"n_head", "num_key_value_heads"};
constexpr Names kHeadDim = {"n_embd / n_head", "head_dim"};
constexpr Names kHiddenDims = {"n_inner", "intermediate_size"};
constexpr Names kMaxPositions = {"n_positions", "max_position_embeddings"};
constexpr Names kEpsilon = {"layer_norm_epsilon", "rms_norm_eps"};
constexpr Names kActivation = {"activation_function", "hidden_act"};
constexpr std::string_view kTied = "tie_word_embeddings";
constexpr std::string_view kInverseLayerScale = "scale_attn_by_inverse_layer_idx";  // GPT-2's.

struct ActivationRow {
  std::string_view name;
  Template<Activation> activation;
};

const std::vector<ActivationRow>& activations() {
  static const std::vector<ActivationRow> rows = {
      {"gelu_new", GELU::HParams{.approximate = true}},
      {"gelu_pytorch_tanh", GELU::HParams{}},
      {"gelu_fast", GELU::HParams{}},
      {"gelu", GELU::HParams{.approximate = false}},
      {"gelu_python", GELU::HParams{.approximate = false}},
      {"silu", SiLU::HParams{}},
      {"swish", SiLU::HParams{}},
      {"relu", ReLU::HParams{}},
      {"relu2", SquaredReLU::HParams{}},
      {"relu6", ReLU6::HParams{}},
      {"leaky_relu", LeakyReLU::HParams{}},
      {"sigmoid", Sigmoid::HParams{}},
      {"tanh", Tanh::HParams{}},
      {"linear", Identity::HParams{}}};
  return rows;
}

// Reads members of config.json; null means absent.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  const Json* find(std::string_view name) const {
    const Json* found = json_.find(name);
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  int64_t size(std::string_view name, int64_t most) const {
    if (find(name) == nullptr) fail("{} lacks '{}', a whole number", where(), name);
    return size_or(name, most, 0);
  }
  int64_t size_or(std::string_view name, int64_t most, int64_t otherwise) const {
    const Json* found = find(name);
    const int64_t size = found == nullptr ? otherwise : found->as_integer();
    if (found != nullptr && (size < 1 || size > most))
      fail("{} is {}, expected a number from 1 to {}", found->where(), size, most);
    return size;
  }
  double positive_or(std::string_view name, double otherwise) const {
    const Json* found = find(name);
    const double number = found == nullptr ? otherwise : found->as_number();
    if (!(number > 0.0) || !std::isfinite(number))
      fail("{} is {}, expected a number above 0", found->where(), number);
    return number;
  }
  double rate_or(std::string_view name, double otherwise) const {
    const Json* found = find(name);
    const double rate = found == nullptr ? otherwise : found->as_number();
    if (!(rate >= 0.0 && rate < 1.0))
      fail("{} is {}, expected a rate from 0 to below 1", found->where(), rate);
    return rate;
  }
  bool flag_or(std::string_view name, bool otherwise) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->as_bool();
  }
  std::string text_or(std::string_view name, const std::string& otherwise) const {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->as_string();
  }
  const std::string& where() const { return json_.where(); }

 private:
  const Json& json_;
};

HfFamily parse_family(const Reader& reader) {
  const std::string type = reader.text_or("model_type", "");
  std::vector<std::string> names;
  for (const auto& row : enum_names(HfFamily{})) {
    if (row.name == type) return row.value;
    names.emplace_back(row.name);
  }
  fail("{}: model_type is '{}', expected one of {}{}", reader.where(), type, fmt::join(names, ", "),
       did_you_mean(type, names));
}

// Members that change logits and that our models do not support.
void check_supported(const Reader& reader) {
  const auto refuse = [&](std::string_view name, std::string_view why) {
    fail("{}: {}: {}", reader.where(), name, why);
  };
  if (reader.find("quantization_config") != nullptr)
    refuse("quantization_config",
           "quantised weights are not supported; convert them to bf16 or f32");
  if (!reader.flag_or("scale_attn_weights", true))
    refuse("scale_attn_weights", "is false; expected scores divided by √head_dim");
  if (reader.flag_or("add_cross_attention", false))
    refuse("add_cross_attention", "is true; expected a decoder only");
}

void parse_rotation(const Json& json, HfConfig* into) {
  const Reader reader(json);
  for (const auto& [name, value] : json.as_object())
    if (value.is_object())
      fail("{}: a rotation for each kind of layer is not supported", reader.where());
  into->rope_theta = reader.positive_or("rope_theta", into->rope_theta);
  const std::string type = reader.text_or("rope_type", reader.text_or("type", "default"));
  if (reader.positive_or("partial_rotary_factor", 1.0) != 1.0)
    fail("{}: partial_rotary_factor is not 1, but rotating a part of each head is not supported",
         reader.where());
  if (type == "default") return;
  if (type == "linear") {
    into->rope_factor = reader.positive_or("factor", 1.0);
  } else if (type == "llama3") {
    into->stretch.factor = reader.positive_or("factor", 1.0);
    into->stretch.low = reader.positive_or("low_freq_factor", 1.0);
    into->stretch.high = reader.positive_or("high_freq_factor", 4.0);
    into->stretch.length =
        static_cast<double>(reader.size_or("original_max_position_embeddings", kMostTokens, 8192));
    if (into->stretch.low >= into->stretch.high)
      fail("{}: low_freq_factor {} is not below high_freq_factor {}", reader.where(),
           into->stretch.low, into->stretch.high);
  } else {
    fail("{} has type '{}', expected default, linear or llama3", reader.where(), type);
  }
}

// transformers writes all of these members, whatever their values.
void parse_experts(const Reader& reader, HfConfig* config) {
  config->num_experts = reader.size("num_local_experts", kMostDims);
  config->experts_per_token = reader.size("num_experts_per_tok", kMostDims);
  if (config->experts_per_token > config->num_experts)
    fail("{}: num_experts_per_tok={} exceeds num_local_experts={}", reader.where(),
         config->experts_per_token, config->num_experts);
  if (const Json* coef = reader.find("router_aux_loss_coef"))
    config->router_loss_coef = coef->as_number();
  if (!(config->router_loss_coef >= 0.0) || !std::isfinite(config->router_loss_coef))
    fail("{}: router_aux_loss_coef is {}, expected a number from 0", reader.where(),
         config->router_loss_coef);
  config->router_jitter = reader.rate_or("router_jitter_noise", 0.0);
  // A window as long as the longest sequence changes nothing.
  const int64_t window = reader.size_or("sliding_window", kMostTokens, config->max_positions);
  if (window < config->max_positions)
    fail(
        "{}: sliding_window={} is shorter than max_position_embeddings={}, but attention in a "
        "window is not supported",
        reader.where(), window, config->max_positions);
}

void parse_llama(const Reader& reader, HfConfig* config) {
  const bool has_experts = config->family == HfFamily::kMixtral;
  config->num_kv_heads = has_experts
                             ? reader.size("num_key_value_heads", kMostDims)
                             : reader.size_or("num_key_value_heads", kMostDims, config->num_heads);
  const int64_t even = config->model_dims / config->num_heads;
  config->head_dim = reader.size_or("head_dim", kMostDims, std::max<int64_t>(1, even));
  config->hidden_dims = reader.size("intermediate_size", kMostDims * 16);
  if (!has_experts) {
    config->attention_bias = reader.flag_or("attention_bias", false);
    config->mlp_bias = reader.flag_or("mlp_bias", false);
  }
  config->attention_dropout = reader.rate_or("attention_dropout", 0.0);
  config->rope_theta = reader.positive_or("rope_theta", has_experts ? 1e6 : 1e4);
  // The name up to version 5 of transformers, and the later one.
  for (const std::string_view name : {"rope_scaling", "rope_parameters"})
    if (const Json* json = reader.find(name)) parse_rotation(*json, config);
  if (config->num_heads % config->num_kv_heads != 0)
    fail("{}: num_key_value_heads={} does not divide num_attention_heads={}", reader.where(),
         config->num_kv_heads, config->num_heads);
  if (config->head_dim % 2 != 0)
    fail("{}: head_dim={} is odd; it is rotated in pairs", reader.where(), config->head_dim);
  if (has_experts) parse_experts(reader, config);
}

void parse_gpt2(const Reader& reader, HfConfig* config) {
  config->num_kv_heads = config->num_heads;
  config->head_dim = config->model_dims / config->num_heads;
  if (config->model_dims % config->num_heads != 0)
    fail("{}: n_head={} does not divide n_embd={}", reader.where(), config->num_heads,
         config->model_dims);
  config->hidden_dims = reader.size_or("n_inner", kMostDims * 16, 4 * config->model_dims);
  config->inverse_layer_scale = reader.flag_or(kInverseLayerScale, false);
  config->residual_dropout = reader.rate_or("resid_pdrop", 0.1);
  config->embedding_dropout = reader.rate_or("embd_pdrop", 0.1);
  config->attention_dropout = reader.rate_or("attn_pdrop", 0.1);
}

// A number as JSON with a decimal point, where transformers expects a float.
std::string number_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string_view architecture(HfFamily family) {
  if (family == HfFamily::kGpt2) return "GPT2LMHeadModel";
  return family == HfFamily::kLlama ? "LlamaForCausalLM" : "MixtralForCausalLM";
}

class Writer {
 public:
  void add(std::string_view name, std::string_view json) {
    lines_.push_back(fmt::format("  \"{}\": {}", name, json));
  }
  void add(std::string_view name, int64_t number) { add(name, std::to_string(number)); }
  void add(std::string_view name, double number) { add(name, number_text(number)); }
  void add_flag(std::string_view name, bool flag) { add(name, fmt::format("{}", flag)); }
  void add_text(std::string_view name, std::string_view text) {
    add(name, fmt::format("\"{}\"", text));
  }
  std::string text() const { return fmt::format("{{\n{}\n}}\n", fmt::join(lines_, ",\n")); }

 private:
  std::vector<std::string> lines_;
};

void write_rotation(const HfConfig& config, Writer* writer) {
  writer->add("rope_theta", config.rope_theta);
  std::string scaling = "null";
  if (config.rope_factor != 1.0)
    scaling =
        fmt::format(R"({{"rope_type": "linear", "factor": {}}})", number_text(config.rope_factor));
  if (config.stretch.factor != 1.0)
    scaling = fmt::format(
        R"({{"rope_type": "llama3", "factor": {}, "low_freq_factor": {}, "high_freq_factor": {}, )"
        R"("original_max_position_embeddings": {}}})",
        number_text(config.stretch.factor), number_text(config.stretch.low),
        number_text(config.stretch.high), std::llround(config.stretch.length));
  writer->add("rope_scaling", scaling);
}

void write_gpt2(const HfConfig& config, Writer* writer) {
  writer->add("attn_pdrop", config.attention_dropout);
  writer->add("embd_pdrop", config.embedding_dropout);
  writer->add("resid_pdrop", config.residual_dropout);
  writer->add_flag("scale_attn_weights", true);
  writer->add_flag(kInverseLayerScale, config.inverse_layer_scale);
}

void write_llama(const HfConfig& config, Writer* writer) {
  writer->add("num_key_value_heads", config.num_kv_heads);
  writer->add("head_dim", config.head_dim);
  const bool has_experts = config.family == HfFamily::kMixtral;
  if (!has_experts) writer->add_flag("attention_bias", config.attention_bias);
  writer->add("attention_dropout", config.attention_dropout);
  if (!has_experts) writer->add_flag("mlp_bias", config.mlp_bias);
  if (has_experts) {
    writer->add("num_local_experts", config.num_experts);
    writer->add("num_experts_per_tok", config.experts_per_token);
    writer->add("router_aux_loss_coef", config.router_loss_coef);
    writer->add("router_jitter_noise", config.router_jitter);
    writer->add("sliding_window", "null");
  }
  write_rotation(config, writer);
}

template <typename T>
bool alike(const T& a, const T& b) {
  return a == b;
}
// Equal up to rounding.
bool alike(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(a); }

// The differences of two models with rotary positions.
template <typename Compare>
void compare_rotary(const HfConfig& file, const HfConfig& experiment, const Compare& compare) {
  compare("attention_bias", file.attention_bias, experiment.attention_bias);
  compare("mlp_bias", file.mlp_bias, experiment.mlp_bias);
  compare("num_local_experts", file.num_experts, experiment.num_experts);
  compare("num_experts_per_tok", file.experts_per_token, experiment.experts_per_token);
  compare("rope_theta", file.rope_theta, experiment.rope_theta);
  compare("rope_scaling.factor of type linear", file.rope_factor, experiment.rope_factor);
  compare("rope_scaling.factor of type llama3", file.stretch.factor, experiment.stretch.factor);
  if (file.stretch.factor == 1.0 || experiment.stretch.factor == 1.0) return;
  compare("rope_scaling.low_freq_factor", file.stretch.low, experiment.stretch.low);
  compare("rope_scaling.high_freq_factor", file.stretch.high, experiment.stretch.high);
  compare("rope_scaling.original_max_position_embeddings", file.stretch.length,
          experiment.stretch.length);
}

}  // namespace

Template<Activation> hf_activation(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const ActivationRow& row : activations()) {
    if (row.name == name) return row.activation;
    names.emplace_back(row.name);
  }
  fail("{}: unknown activation '{}'{}; expected one of {}", where, name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

std::string hf_activation_name(const Template<Activation>& activation) {
  for (const ActivationRow& row : activations())
    if (row.activation == activation) return std::string(row.name);
  return "";
}

HfConfig parse_hf_config(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const Reader reader(json);
  HfConfig config;
  config.family = parse_family(reader);
  check_supported(reader);
  const HfFamily family = config.family;
  const bool is_gpt2 = family == HfFamily::kGpt2;
  config.vocab_size = reader.size(kVocabSize.of(family), kMostTokens);
  config.model_dims = reader.size(kModelDims.of(family), kMostDims);
  config.num_layers = reader.size(kNumLayers.of(family), kMostLayers);
  config.num_heads = reader.size(kNumHeads.of(family), kMostDims);
  const bool is_llama = family == HfFamily::kLlama;
  config.max_positions =
      is_gpt2 ? reader.size(kMaxPositions.of(family), kMostTokens)
              : reader.size_or(kMaxPositions.of(family), kMostTokens, is_llama ? 2048 : 131072);
  config.norm_epsilon = reader.positive_or(kEpsilon.of(family), is_llama ? 1e-6 : 1e-5);
  config.activation = hf_activation_name(
      hf_activation(reader.text_or(kActivation.of(family), is_gpt2 ? "gelu_new" : "silu"), where));
  config.tied = reader.flag_or(kTied, is_gpt2);
  (is_gpt2 ? parse_gpt2 : parse_llama)(reader, &config);
  return config;
}

std::string hf_config_text(const HfConfig& config, std::string_view dtype,
                           const HfSpecialIds& special) {
  const HfFamily family = config.family;
  const bool is_gpt2 = family == HfFamily::kGpt2;
  Writer writer;
  writer.add("architectures", fmt::format("[\"{}\"]", architecture(family)));
  writer.add_text("model_type", enum_name(family));
  const auto id = [](int64_t value) { return value < 0 ? "null" : std::to_string(value); };
  writer.add("bos_token_id", id(special.begin));
  writer.add("eos_token_id", id(special.end));
  // The name up to version 5 of transformers, and the later one.
  writer.add_text("torch_dtype", dtype);
  writer.add_text("dtype", dtype);
  writer.add(kVocabSize.of(family), config.vocab_size);
  writer.add(kModelDims.of(family), config.model_dims);
  writer.add(kNumLayers.of(family), config.num_layers);
  writer.add(kNumHeads.of(family), config.num_heads);
  writer.add(kHiddenDims.of(family), config.hidden_dims);
  writer.add(kMaxPositions.of(family), config.max_positions);
  writer.add(kEpsilon.of(family), config.norm_epsilon);
  writer.add_text(kActivation.of(family), config.activation);
  writer.add_flag(kTied, config.tied);
  (is_gpt2 ? write_gpt2 : write_llama)(config, &writer);
  return writer.text();
}

std::vector<std::string> hf_differences(const HfConfig& file, const HfConfig& experiment) {
  std::vector<std::string> lines;
  const auto compare = [&](std::string_view name, const auto& a, const auto& b) {
    if (!alike(a, b))
      lines.push_back(fmt::format("{}: {} in config.json, {} in the experiment", name, a, b));
  };
  compare("model_type", enum_name(file.family), enum_name(experiment.family));
  const auto compare_named = [&](const Names& names, const auto& a, const auto& b) {
    compare(names.of(file.family), a, b);
  };
  compare_named(kVocabSize, file.vocab_size, experiment.vocab_size);
  compare_named(kModelDims, file.model_dims, experiment.model_dims);
  compare_named(kNumLayers, file.num_layers, experiment.num_layers);
  compare_named(kNumHeads, file.num_heads, experiment.num_heads);
  if (file.family != HfFamily::kGpt2 || file.num_kv_heads != file.num_heads)
    compare_named(kNumKvHeads, file.num_kv_heads, experiment.num_kv_heads);
  compare_named(kHeadDim, file.head_dim, experiment.head_dim);
  compare_named(kHiddenDims, file.hidden_dims, experiment.hidden_dims);
  if (file.family == HfFamily::kGpt2)
    compare_named(kMaxPositions, file.max_positions, experiment.max_positions);
  compare_named(kEpsilon, file.norm_epsilon, experiment.norm_epsilon);
  compare_named(kActivation, file.activation, experiment.activation);
  compare(kTied, file.tied, experiment.tied);
  compare(kInverseLayerScale, file.inverse_layer_scale, experiment.inverse_layer_scale);
  if (file.family == experiment.family && file.family != HfFamily::kGpt2)
    compare_rotary(file, experiment, compare);
  return lines;
}

}  // namespace tessera
