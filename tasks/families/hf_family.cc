// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/hf_family.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

constexpr double kInitScale = 0.02;  // For weights that are not read.
constexpr const char* kTextOnly =
    "models with a tower for images or sound are not supported, only their text model alone (for "
    "Gemma 3: Gemma3ForCausalLM). Save it with transformers: m = AutoModelForImageTextToText."
    "from_pretrained(FROM); t = AutoModelForCausalLM.from_config(m.config.text_config); t.model, "
    "t.lm_head = m.model.language_model, m.lm_head; t.save_pretrained(TO)";

// By model_type; several of one name are found out when it is used.
std::multimap<std::string_view, std::unique_ptr<const HfFamily>>& registry() {
  static std::multimap<std::string_view, std::unique_ptr<const HfFamily>> families;
  return families;
}

void drop_nothing(TransformerBlock::HParams& layer) {
  layer.residual_dropout_rate = 0.0;
  if (layer.ffn_tpl.holds<FeedForward::HParams>())
    layer.ffn_tpl.as<FeedForward::HParams>().dropout_rate = 0.0;
  for (auto* const attention_tpl : {&layer.attention_tpl, &layer.cross_attention_tpl})
    if (attention_tpl->holds<DotProductAttention::HParams>())
      attention_tpl->as<DotProductAttention::HParams>().dropout_rate = 0.0;
}

// Dropout is a choice of the experiment.
LayeredLm read_members(const HfFamily& family, ConfigMembers& config) {
  LayeredLm model;
  model.lm.params_init = WeightInit{InitKind::kGaussian, kInitScale};
  family.members(config, model);
  model.lm.embedding_dropout_rate = 0.0;
  if (model.lm.encoder_tpl.has())
    model.lm.encoder_tpl.as<TransformerEncoder::HParams>().dropout_rate = 0.0;
  for (auto* const layers : {&model.layers, &model.encoder.layers})
    for (TransformerBlock::HParams& layer : *layers) drop_nothing(layer);
  return model;
}

// With all sizes inherited, as differences() expects.
LayeredLm settled(const LayeredLm& model) {
  return layers_of(stacked(model, StackStyle::kRepeated));
}

// "attention.query_bias", "attention_norm.bias", "head.b".
std::string bias_of(std::string ours) {
  if (ours.ends_with(".scale")) return ours.replace(ours.rfind('.'), ours.npos, ".bias");
  if (ours.ends_with(".w")) return ours.replace(ours.rfind('.'), ours.npos, ".b");
  return ours + "_bias";
}

// Adds the rows of biases, those of a tensor's parts after its parts.
std::vector<WeightRow> with_biases(const std::vector<WeightRow>& rows) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<WeightRow> all;
  for (size_t i = 0; i < rows.size();) {
    const std::string& weight = rows[i].theirs;
    const std::string bias = weight.substr(0, weight.rfind('.')) + ".bias";
    // A table that may also be the head has none.
    const bool has_none = !weight.ends_with(kWeight) || rows[i].ours.find('|') != std::string::npos;
    const bool is_listed = std::ranges::find(rows, bias, &WeightRow::theirs) != rows.end();
    size_t end = i;
    for (; end < rows.size() && rows[end].theirs == weight; ++end) all.push_back(rows[end]);
    for (; i < end; ++i)
      if (const auto& [theirs, axes, ours, with] = rows[i]; !has_none && !is_listed)
        all.push_back({bias, axes.substr(0, axes.find(',')), bias_of(ours), with});
  }
  return all;
}

}  // namespace

FamilyRegistrar::FamilyRegistrar(HfFamily family) {
  family.weights = with_biases(family.weights);
  const std::string_view name = family.model_type;
  registry().emplace(name, std::make_unique<const HfFamily>(std::move(family)));
}

std::vector<const HfFamily*> hf_families() {
  std::vector<const HfFamily*> families;
  for (const auto& [name, family] : registry()) families.push_back(family.get());
  std::ranges::stable_sort(families, std::greater(), &HfFamily::preference);
  return families;
}

std::string hf_family_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, family] : registry()) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const HfFamily& hf_family(std::string_view model_type, const std::string& where) {
  const auto [first, last] = registry().equal_range(model_type);
  if (std::distance(first, last) > 1) fail("two families are registered as '{}'", model_type);
  if (first != last) return *first->second;
  std::vector<std::string> names;
  for (const auto& [name, family] : registry()) names.emplace_back(name);
  fail("{} is '{}', expected one of {}{}", where, model_type, fmt::join(names, ", "),
       did_you_mean(std::string(model_type), names));
}

HfConfig read_hf_config(std::string_view text, const std::string& where, const HasHead& has_head) {
  const Json json = parse_json(text, where);
  ConfigMembers members(json, has_head);
  for (const char* part : {"vision_config", "audio_config", "text_config"})
    members.absent(part, kTextOnly);
  std::string model_type;
  members.text("model_type", model_type, "");
  HfConfig config;
  config.family = &hf_family(model_type, where + ": model_type");
  members.ignore("quantization_config");  // Read with the tensors.
  config.model = read_members(*config.family, members);
  config.unread = members.unread();
  return config;
}

WrittenConfig write_hf_config(const HfFamily& family, LayeredLm model) {
  WrittenConfig written;
  const LayeredLm original = model;
  ConfigMembers members;
  try {
    family.members(members, model);
    written.lines = members.lines();
    written.reasons = members.reasons();
    written.has_other_parts = !written.reasons.empty();
    if (written.has_other_parts) return written;
    const std::string text = fmt::format("{{\n{}\n}}", fmt::join(written.lines, ",\n"));
    const Json json = parse_json(text, fmt::format("as {}", family.model_type));
    ConfigMembers read(json, [&] { return original.has_own_head(); });
    written.model = settled(read_members(family, read));
  } catch (const Error& error) {
    written.has_other_parts = !members.reasons().empty();
    written.reasons = members.reasons();
    if (written.reasons.empty()) written.reasons.emplace_back(error.what());
    return written;
  }
  const auto layers = static_cast<int64_t>(original.layers.size());
  for (const SettingDifference& each : differences(original, written.model, Missing::kIsAllowed))
    written.reasons.push_back(
        fmt::format("{} is {}, expected {}", each.name(layers), each.first, each.second));
  return written;
}

}  // namespace tessera
