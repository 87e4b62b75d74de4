// SPDX-License-Identifier: Apache-2.0
#include "tasks/families/config_members.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/ranges.h>

#include "core/base/error.h"

namespace tessera {
namespace {

struct ActivationRow {
  std::string_view name;
  Template<Activation> activation;
};

// The first of several names is written.
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

// Members of every config.json without effect on logits.
constexpr std::string_view kHarmless[] = {
    // Files and types.
    "_name_or_path", "architectures", "auto_map", "dtype", "model_type", "torch_dtype",
    "transformers_version", "use_bfloat16",
    // Tokens and labels.
    "bos_token_id", "eos_token_id", "id2label", "label2id", "num_labels", "pad_token_id",
    "problem_type", "sep_token_id",
    // Training and generation.
    "chunk_size_feed_forward", "initializer_range", "is_decoder", "is_encoder_decoder",
    "output_attentions", "output_hidden_states", "output_router_logits", "pretraining_tp",
    "return_dict", "task_specific_params", "use_cache"};

}  // namespace

Template<Activation> activation_named(const std::string& name, const std::string& where) {
  std::vector<std::string> names;
  for (const ActivationRow& row : activations()) {
    if (row.name == name) return row.activation;
    names.emplace_back(row.name);
  }
  fail("{}: unknown activation '{}'{}; expected one of {}", where, name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

const Json* ConfigMembers::find(std::string_view name) {
  if (!reads()) return nullptr;
  read_.emplace(name);
  const Json* found = json_->find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool ConfigMembers::is_null(std::string_view name) const {
  const Json* found = json_->find(name);
  return found != nullptr && found->is_null();
}

void ConfigMembers::add(std::string_view name, const std::string& json) {
  if (!reads() && written_.emplace(name).second)
    lines_.push_back(fmt::format("\"{}\": {}", name, json));
}

std::string ConfigMembers::object() const { return fmt::format("{{{}}}", fmt::join(lines_, ", ")); }

std::string ConfigMembers::number_text(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::vector<std::string> ConfigMembers::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : json_->as_object())
    if (!read_.contains(name) && std::ranges::find(kHarmless, name) == std::end(kHarmless) &&
        !value.is_null())
      names.push_back(name);
  return names;
}

void ConfigMembers::bind_size(std::string_view name, int64_t* value,
                              std::optional<int64_t> otherwise, int64_t most) {
  if (!reads()) return add(name, std::to_string(*value));
  const Json* found = find(name);
  if (found == nullptr && !otherwise) fail("{} lacks '{}', a whole number", where(), name);
  *value = found == nullptr ? *otherwise : found->as_integer();
  if (found != nullptr && (*value < 1 || *value > most))
    fail("{} is {}, expected a number from 1 to {}", found->where(), *value, most);
}

void ConfigMembers::bind_number(std::string_view name, double* value,
                                std::optional<double> otherwise) {
  if (!reads()) return add(name, number_text(*value));
  const Json* found = find(name);
  if (found == nullptr && !otherwise) fail("{} lacks '{}', a number", where(), name);
  *value = found == nullptr ? *otherwise : found->as_number();
}

void ConfigMembers::bind_positive(std::string_view name, double* value,
                                  std::optional<double> otherwise) {
  bind_number(name, value, otherwise);
  if (reads() && (!(*value > 0.0) || !std::isfinite(*value)))
    fail("{}: {} is {}, expected a number above 0", where(), name, *value);
}

void ConfigMembers::bind_flag(std::string_view name, bool* value, bool otherwise) {
  if (!reads()) return add(name, fmt::format("{}", *value));
  const Json* found = find(name);
  *value = found == nullptr ? otherwise : found->as_bool();
}

void ConfigMembers::number(std::string_view name, int64_t& value, int64_t otherwise) {
  if (!reads()) return add(name, std::to_string(value));
  const Json* found = find(name);
  value = found == nullptr ? otherwise : found->as_integer();
  if (value < 0 || value > kMostTokens)
    fail("{}: {} is {}, expected a number from 0 to {}", where(), name, value, kMostTokens);
}

void ConfigMembers::rate(std::string_view name, double& value, double otherwise) {
  bind_number(name, &value, otherwise);
  if (reads() && !(value >= 0.0 && value < 1.0))
    fail("{}: {} is {}, expected a rate from 0 to below 1", where(), name, value);
}

void ConfigMembers::not_negative(std::string_view name, double& value, double otherwise) {
  bind_number(name, &value, otherwise);
  if (reads() && (!(value >= 0.0) || !std::isfinite(value)))
    fail("{}: {} is {}, expected a number from 0", where(), name, value);
}

void ConfigMembers::optional_positive(std::string_view name, double& value, double otherwise) {
  if (!reads() && value == 0.0) return add(name, "null");
  if (reads() && (is_null(name) || (find(name) == nullptr && otherwise == 0.0))) {
    value = 0.0;
  } else {
    bind_positive(name, &value, otherwise);
  }
}

void ConfigMembers::text(std::string_view name, std::string& value, const std::string& otherwise) {
  if (!reads()) return add(name, json_quoted(value));
  const Json* found = find(name);
  value = found == nullptr ? otherwise : found->as_string();
}

void ConfigMembers::numbers(std::string_view name, std::vector<int64_t>& values,
                            const std::vector<int64_t>& otherwise) {
  if (!reads()) return add(name, fmt::format("[{}]", fmt::join(values, ", ")));
  values = otherwise;
  const Json* found = find(name);
  if (found == nullptr) return;
  values.clear();
  for (const Json& each : found->as_array()) values.push_back(each.as_integer());
}

void ConfigMembers::reals(std::string_view name, std::vector<double>& values) {
  const Json* found = find(name);
  if (found == nullptr) fail("{} lacks '{}', a list of numbers", where(), name);
  for (const Json& each : found->as_array()) {
    values.push_back(each.as_number());
    if (!(values.back() > 0.0) || !std::isfinite(values.back()))
      fail("{} is {}, expected a number above 0", each.where(), values.back());
  }
}

void ConfigMembers::texts(std::string_view name, std::vector<std::string>& values,
                          const std::vector<std::string>& otherwise) {
  if (!reads()) return add(name, json_list(values, json_quoted));
  values = otherwise;
  const Json* found = find(name);
  if (found == nullptr) return;
  values.clear();
  for (const Json& each : found->as_array()) values.push_back(each.as_string());
}

void ConfigMembers::activation(std::string_view name, Template<Activation>& activation_tpl,
                               const std::string& otherwise) {
  if (reads()) {
    std::string activation;
    text(name, activation, otherwise);
    activation_tpl = activation_named(activation, where());
    return;
  }
  const std::string written = activation_name(activation_tpl);
  if (!written.empty()) add(name, json_quoted(written));
}

std::string ConfigMembers::activation_name(const Template<Activation>& activation_tpl) {
  for (const ActivationRow& row : activations())
    if (row.activation == activation_tpl) return std::string(row.name);
  reason("activation_tpl is {}, which transformers does not have", activation_tpl.name());
  return "";
}

void ConfigMembers::only(std::string_view name, bool expected, std::string_view why,
                         bool otherwise) {
  bool value = expected;
  bind_flag(name, &value, otherwise);
  if (value != expected) fail("{}: {} is {}: {}", where(), name, value, why);
}

void ConfigMembers::only(std::string_view name, const std::string& expected, std::string_view why) {
  std::string value = expected;
  text(name, value, expected);
  if (value != expected) fail("{}: {} is '{}': {}", where(), name, value, why);
}

void ConfigMembers::absent(std::string_view name, std::string_view why) {
  if (find(name) != nullptr) fail("{}: {}: {}", where(), name, why);
}

}  // namespace tessera
