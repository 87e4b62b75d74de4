// SPDX-License-Identifier: Apache-2.0
// The members of windows of attention in config.json: sliding_window of all layers, or of those
// that layer_types names.
#include "core/base/error.h"
#include "tasks/families/parts.h"

namespace tessera {
namespace {

DotProductAttention::HParams& attention_in(TransformerBlock::HParams& layer) {
  return layer.attention_tpl.as<DotProductAttention::HParams>();
}

// 0: none.
int64_t read_window(ConfigMembers& config, const WindowRule& rule) {
  bool is_on = true;
  if (rule.has_switch) config.flag("use_sliding_window", is_on, false);
  const Json* found = config.find(kSlidingWindow);
  if (found == nullptr) return is_on && !config.is_null(kSlidingWindow) ? rule.otherwise : 0;
  const int64_t window = found->as_integer();
  if (window < 1 || window > ConfigMembers::kMostTokens)
    fail("{} is {}, expected a number from 1, or null for none", found->where(), window);
  return is_on ? window : 0;
}

void read_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  const int64_t window = read_window(config, rule);
  std::vector<std::string> types = rule.layer_types;
  if (!types.empty()) bind_layer_types(config, model, types);
  for (size_t i = 0; i < model.layers.size(); ++i)
    if (window > 0 && (types.empty() || types[i] == kSlidingAttention))
      attention_in(model.layers[i]).window = window;
}

void write_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  std::string window = "null";
  std::vector<std::string> types;
  for (TransformerBlock::HParams& layer : model.layers) {
    const Field<int64_t>& own = attention_in(layer).window;
    if (own.has()) window = std::to_string(own.get());
    types.emplace_back(own.has() ? kSlidingAttention : kFullAttention);
  }
  if (rule.has_switch) config.add("use_sliding_window", window == "null" ? "false" : "true");
  config.add(kSlidingWindow, window);
  if (!rule.layer_types.empty()) bind_layer_types(config, model, types);
}

}  // namespace

void bind_layer_types(ConfigMembers& config, const LayeredLm& model,
                      std::vector<std::string>& types, std::string_view other) {
  config.texts("layer_types", types, std::vector(types));
  if (types.size() != model.layers.size())
    fail("{}: layer_types has {} entries for {} layers", config.where(), types.size(),
         model.layers.size());
  for (const std::string& type : types)
    if (type != other && type != kFullAttention)
      fail("{}: layer_types has '{}', expected {} or {}", config.where(), type, kFullAttention,
           other);
}

void bind_windows(ConfigMembers& config, LayeredLm& model, const WindowRule& rule) {
  for (TransformerBlock::HParams& layer : model.layers)
    config.part<DotProductAttention::HParams>(layer.attention_tpl, "attention_tpl");
  config.reads() ? read_windows(config, model, rule) : write_windows(config, model, rule);
}

std::vector<std::string> sliding_layers(const LayeredLm& model,
                                        const std::function<bool(size_t)>& slides) {
  std::vector<std::string> types;
  for (size_t i = 0; i < model.layers.size(); ++i)
    types.emplace_back(slides(i) ? kSlidingAttention : kFullAttention);
  return types;
}

}  // namespace tessera
