// SPDX-License-Identifier: Apache-2.0
// Configurable classes for the tests of core/hparams: a block of a norm and a feed-forward layer,
// in a model.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/layer_params.h"
#include "core/hparams/template.h"

namespace tessera::sample {

enum class Padding { kSame, kValid };
constexpr std::array<EnumName<Padding>, 2> enum_names(Padding) {
  return {{{Padding::kSame, "same"}, {Padding::kValid, "valid"}}};
}

class Unary {
 public:
  virtual ~Unary() = default;
  virtual std::string text() const = 0;
};

class ReLU final : public Unary {
 public:
  struct HParams {
    using Instance = ReLU;
    static constexpr std::string_view kName = "ReLU";
    FIELDS()
  };
  explicit ReLU(const HParams&) {}
  std::string text() const override { return "relu"; }
};

class Leaky final : public Unary {
 public:
  struct HParams {
    using Instance = Leaky;
    static constexpr std::string_view kName = "Leaky";
    double slope = 0.01;
    Field<DTypePolicy> dtypes;
    FIELDS(slope, dtypes)
  };
  explicit Leaky(const HParams& p) : p_(p) {}
  std::string text() const override {
    return fmt::format("leaky({}, {})", p_.slope,
                       dtype_name(p_.dtypes.get_or(DTypePolicy{}).compute));
  }

 private:
  HParams p_;
};

class Clipped final : public Unary {
 public:
  struct HParams {
    using Instance = Clipped;
    static constexpr std::string_view kName = "Clipped";
    double slope = 0.5;
    double limit = 6.0;
    FIELDS(slope, limit)
  };
  explicit Clipped(const HParams&) {}
  std::string text() const override { return "clipped"; }
};

class FeedForward final : public Unary {
 public:
  struct HParams {
    using Instance = FeedForward;
    static constexpr std::string_view kName = "FeedForward";
    Required<int64_t> hidden_dims;
    bool use_bias = true;
    Template<Unary> activation_tpl = ReLU::HParams{};
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    FIELDS(hidden_dims, use_bias, activation_tpl, dtypes, params_init)
  };
  explicit FeedForward(const HParams& p) : p_(p), activation_(p.activation_tpl.instantiate()) {}
  std::string text() const override {
    return fmt::format("ffn({}, {}, {})", p_.hidden_dims.get(),
                       dtype_name(p_.dtypes.get_or(DTypePolicy{}).compute), activation_->text());
  }

 private:
  HParams p_;
  std::unique_ptr<Unary> activation_;
};

struct Rule {
  static constexpr std::string_view kName = "Rule";
  std::string pattern = ".*";
  int64_t times = 1;
  FIELDS(pattern, times)
};

class Model final : public Unary {
 public:
  struct HParams {
    using Instance = Model;
    static constexpr std::string_view kName = "Model";
    std::string title = "untitled";
    int64_t num_layers = 2;
    double rate = 1e-3;
    Padding padding = Padding::kSame;
    DType logits = DType::kF32;
    Rule rule;
    std::vector<int64_t> shape = {1, 4, 1};
    std::vector<Rule> rules = {{"a.*", 2}};
    std::vector<Template<Unary>> heads;
    std::map<std::string, double> weights;
    std::optional<int64_t> limit;
    Field<double> epsilon = 1e-6;
    Required<int64_t> vocab_size;
    Template<Unary> ffn_tpl = FeedForward::HParams{};
    Template<Unary> spare_tpl;
    Field<DTypePolicy> dtypes;
    Field<WeightInit> params_init;
    FIELDS(title, num_layers, rate, padding, logits, rule, shape, rules, heads, weights, limit,
           epsilon, vocab_size, ffn_tpl, spare_tpl, dtypes, params_init)
  };
  explicit Model(const HParams& p) : ffn_(p.ffn_tpl.instantiate()) {}
  std::string text() const override { return ffn_->text(); }

 private:
  std::unique_ptr<Unary> ffn_;
};

// Registered once per program, as in the .cc of a layer.
inline const TemplateRegistrar<Unary, ReLU> kRegisterReLU;
inline const TemplateRegistrar<Unary, Leaky> kRegisterLeaky;
inline const TemplateRegistrar<Unary, Clipped> kRegisterClipped;
inline const TemplateRegistrar<Unary, FeedForward> kRegisterFeedForward;
inline const TemplateRegistrar<Unary, Model> kRegisterModel;

}  // namespace tessera::sample
