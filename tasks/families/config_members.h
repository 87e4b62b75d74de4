// SPDX-License-Identifier: Apache-2.0
// The members of a Hugging Face config.json, read or written. A family states each member once,
// with the field of ours that holds it; the same function serves both directions:
//
//   config.size("hidden_size", lm.model_dims);
//   config.flag("attention_bias", attention.use_bias, false);
//
// In reading, a field gets the member's value, or the default (Error if it has none). In writing,
// the member gets the field's value; of several fields with one member, the first one's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "core/hparams/template.h"
#include "core/io/json.h"
#include "layers/feed_forward/activations.h"

namespace tessera {

// By transformers' names. Error with the nearest name.
Template<Activation> activation_named(const std::string& name, const std::string& where);

// Whether the files beside a config.json have a tensor for the head; nothing: unknown.
using HasHead = std::function<std::optional<bool>()>;

class ConfigMembers {
 public:
  // Upper bounds of sizes: products of three still fit in 64 bits.
  static constexpr int64_t kMostTokens = int64_t{1} << 31;
  static constexpr int64_t kMostDims = 1 << 20;
  static constexpr int64_t kMostHidden = 16 * kMostDims;

  ConfigMembers() = default;                                       // Writes.
  explicit ConfigMembers(const Json& json, HasHead has_head = {})  // Reads.
      : json_(&json), has_head_(std::move(has_head)) {}

  bool reads() const { return json_ != nullptr; }
  // "config.json", for messages.
  std::string where() const { return reads() ? json_->where() : "the experiment"; }

  // A whole number from 1 to `most`; without a default the member must be present.
  template <typename Value>
  void size(std::string_view name, Value& value, std::optional<int64_t> otherwise = {},
            int64_t most = kMostDims) {
    int64_t number = value_of<int64_t>(value);
    bind_size(name, &number, otherwise, most);
    if (reads()) value = number;
  }
  // A number above 0.
  template <typename Value>
  void positive(std::string_view name, Value& value, std::optional<double> otherwise = {}) {
    double number = value_of<double>(value);
    bind_positive(name, &number, otherwise);
    if (reads()) value = number;
  }
  template <typename Value>
  void flag(std::string_view name, Value& value, bool otherwise) {
    bool set = value_of<bool>(value);
    bind_flag(name, &set, otherwise);
    if (reads()) value = set;
  }
  void number(std::string_view name, int64_t& value, int64_t otherwise);  // A whole number from 0.
  void rate(std::string_view name, double& value, double otherwise);      // From 0 to below 1.
  void not_negative(std::string_view name, double& value, double otherwise);
  // A number above 0, or null for 0.
  void optional_positive(std::string_view name, double& value, double otherwise);
  void text(std::string_view name, std::string& value, const std::string& otherwise);
  // One whole number, or one text, for each layer. The family checks the length.
  void numbers(std::string_view name, std::vector<int64_t>& values,
               const std::vector<int64_t>& otherwise);
  // In reading only: a list of numbers above 0, which must be present.
  void reals(std::string_view name, std::vector<double>& values);
  void texts(std::string_view name, std::vector<std::string>& values,
             const std::vector<std::string>& otherwise);
  // By transformers' names ("gelu_new").
  void activation(std::string_view name, Template<Activation>& activation_tpl,
                  const std::string& otherwise);
  // In writing: the name of an activation; "" with a reason if transformers does not have it.
  std::string activation_name(const Template<Activation>& activation_tpl);
  // A member that has only this value in models that we have. `why` ends the error in reading.
  void only(std::string_view name, bool expected, std::string_view why, bool otherwise);
  void only(std::string_view name, const std::string& expected, std::string_view why);
  // A member that must be absent or null.
  void absent(std::string_view name, std::string_view why);
  // Members without effect on logits.
  void ignore(std::string_view name) { read_.emplace(name); }
  void ignore(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) ignore(name);
  }

  // In reading: a member that is present and not null, or nullptr.
  const Json* find(std::string_view name);
  std::optional<bool> has_head() const { return has_head_ ? has_head_() : std::nullopt; }
  // Whether it is present and null.
  bool is_null(std::string_view name) const;
  // In writing: adds a member, unless one of this name was added. In reading: nothing.
  void add(std::string_view name, const std::string& json);
  static std::string number_text(double number);  // With a decimal point, as a Python float.

  // The HParams of this class in a template. In reading an unset template, or one of another class,
  // is replaced; in writing it is a reason why the model is not of this family.
  template <typename P, typename Base>
  P& part(Template<Base>& layer_tpl, std::string_view path) {
    if (!layer_tpl.template holds<P>()) {
      if (!reads())
        reason("{} is {}, expected {}", path, layer_tpl.has() ? layer_tpl.name() : "unset",
               class_name<P>());
      layer_tpl = P{};
    }
    return layer_tpl.template as<P>();
  }

  // In writing: says why the model is not of this family.
  template <typename... Args>
  void reason(fmt::format_string<Args...> format, Args&&... args) {
    reasons_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::vector<std::string>& reasons() const { return reasons_; }

  std::string object() const;  // The members that were added, as JSON on one line.
  // The same, as lines of JSON.
  const std::vector<std::string>& lines() const { return lines_; }
  // In reading: names of members that the family did not read, and that are not known to be
  // without effect on logits.
  std::vector<std::string> unread() const;

 private:
  // 0 for an unset Field.
  template <typename Result, typename Value>
  static Result value_of(const Value& value) {
    if constexpr (requires { value.get(); }) {
      return value.get_or(typename Value::Value{});
    } else {
      return value;
    }
  }

  void bind_size(std::string_view name, int64_t* value, std::optional<int64_t> otherwise,
                 int64_t most);
  void bind_positive(std::string_view name, double* value, std::optional<double> otherwise);
  void bind_flag(std::string_view name, bool* value, bool otherwise);
  void bind_number(std::string_view name, double* value, std::optional<double> otherwise);

  const Json* json_ = nullptr;
  HasHead has_head_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> lines_;
  std::set<std::string, std::less<>> written_;
  std::vector<std::string> reasons_;
};

}  // namespace tessera
