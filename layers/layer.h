// SPDX-License-Identifier: Apache-2.0
// Layer: the base of every layer and model. A constructor declares weights and children from
// HParams; `fprop` computes with tensors of the graph being traced. Callers write `layer(x)`, which
// opens the layer's scope and calls fprop. A layer holds no numbers and knows no devices,
// collectives or gradients.
#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/plugin_call.h"
#include "core/graph/graph.h"
#include "core/graph/trace.h"
#include "core/hparams/fields.h"
#include "core/hparams/layer_params.h"
#include "core/hparams/template.h"
#include "core/ops/einsum.h"
#include "layers/parameter.h"

namespace tessera {

// The common HParams of layers with initialised weights. As a member `layer` of a layer's HParams
// they are inlined: their paths are "ffn_tpl.dtypes", "ffn_tpl.params_init", "ffn_tpl.rules".
struct LayerHParams {
  static constexpr std::string_view kName = "Layer";
  static constexpr bool kInlined = true;
  Field<DTypePolicy> dtypes;      // The enclosing layer's unless set.
  Field<WeightInit> params_init;  // The enclosing layer's unless set.
  LayerRules rules;               // Axis rules for the layer's own tensors.
  // Layers of one model with the same id have the same weights (Pax: shared_weight_layer_id); so
  // do the layers below them. The weights are "shared.<id>.…", in no stack.
  std::optional<std::string> shared_id;
  FIELDS(dtypes, params_init, rules, shared_id)

  WeightInit init() const { return params_init.get_or(WeightInit{}); }
};

// LayerHParams without params_init, for layers whose weights start as zeros or ones.
struct FixedInitLayerHParams {
  static constexpr std::string_view kName = "Layer";
  static constexpr bool kInlined = true;
  Field<DTypePolicy> dtypes;
  LayerRules rules;
  std::optional<std::string> shared_id;
  FIELDS(dtypes, rules, shared_id)

  // NOLINTNEXTLINE(google-explicit-constructor): to be passed to Layer.
  operator LayerHParams() const {
    return {.dtypes = dtypes, .rules = rules, .shared_id = shared_id};
  }
};

// A weight of a layer: its index in the model's ParameterTable.
struct Weight {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
};

template <typename Base>
class ChildLayer;

class Layer {
 public:
  virtual ~Layer() = default;
  Layer& operator=(Layer&&) = delete;  // Neither copied nor moved.

  // Returns all weights of the model that the layer belongs to.
  const ParameterTable& parameters() const { return *table_; }
  // Makes sizes relative to a base model known to them (layers/parameter.h), before any graph.
  void set_widths(const std::map<std::string, double>& widths) { table_->set_widths(widths); }
  const std::string& path() const { return path_; }
  const DTypePolicy& dtypes() const { return dtypes_; }

 protected:
  explicit Layer(const LayerHParams& p = {});

  // Declares a weight with these axes. Below Repeated it is stacked on `layers`. Axes that carry
  // splits are stored with those splits, whatever the rules say.
  Weight weight(std::string_view name, std::vector<Axis> axes, const WeightInit& init,
                FanAxes fans = {});

  // Declares a weight, initially zero, that follows the layer's metric of this name instead of a
  // gradient (BalancedBy). The metric has the weight's axis.
  Weight balancing_weight(std::string_view name, Axis axis, std::string_view metric, double rate);

  // Makes a layer below this one; `name` is appended to its path. `count`, if not 0: every weight
  // below it is stacked so many times (Repeated).
  template <typename Base>
  ChildLayer<Base> child(std::string_view name, const Template<Base>& layer_tpl,
                         int64_t count = 0) {
    const ChildScope scope(*this, name, count);
    return ChildLayer<Base>(layer_tpl.instantiate());
  }
  // Makes a layer below this one whose weights no learner trains.
  template <typename Base>
  ChildLayer<Base> frozen_child(std::string_view name, const Template<Base>& layer_tpl) {
    const Restored<bool> frozen(construction().frozen, true);
    return child(name, layer_tpl);
  }
  // Returns the weight for computing: this iteration's slice if stacked, cast to `dtype` (the
  // compute dtype by default) and then placed, so that an all-gather sends the narrower type. Its
  // communication is attributed to the caller's line.
  Tensor param(Weight weight, SourceSite site = SourceSite::current()) const {
    return param(weight, dtypes_.compute, site);
  }
  Tensor param(Weight weight, DType dtype, SourceSite site = SourceSite::current()) const;
  // Returns slice `index` of the weight along `axis`, without that axis. It is sliced before it is
  // placed, so that its gradient is reduce-scattered like a whole weight's.
  Tensor param_slice(Weight weight, std::string_view axis, int64_t index,
                     SourceSite site = SourceSite::current()) const;
  // Returns indices [begin, end) of the weight along `axis`, sliced before it is placed, too.
  Tensor param_part(Weight weight, std::string_view axis, int64_t begin, int64_t end,
                    SourceSite site = SourceSite::current()) const;
  // Returns the weight as FpropScope::parameter has it, the whole stack if stacked; in `dtype` if
  // CastWeights have it in that type, otherwise in its own. For models with explicit layouts.
  Tensor stored(Weight weight, DType dtype) const;
  // Returns a bias or scale for `partner`: shared axes get the layout they have there.
  Tensor param_like(Weight weight, const Tensor& partner,
                    SourceSite site = SourceSite::current()) const {
    return param_like(weight, partner, dtypes_.compute, site);
  }
  Tensor param_like(Weight weight, const Tensor& partner, DType dtype,
                    SourceSite site = SourceSite::current()) const;

  // Returns the layer's index in its stack, i32 scalar: equal in a stack that loops and in an
  // unrolled one, and on every stage of a pipeline. In nested stacks, that of the inner one. Error
  // if the layer is in none, or if it is called in a loop inside the layer: call it before the
  // loop.
  Tensor layer_index() const;

  // Computes einsum(x, w, contracted) in the precision of dtypes().matmul. A model that decodes
  // uses the compute dtype: there the scale of 8-bit floats would make a row depend on the other
  // rows.
  Tensor product(Operand x, const Tensor& w, const Over& contracted) const;

  // Checks the result of a function that calls an override of it. Error if it is invalid.
  Tensor returned(std::string_view function, const Tensor& result) const;

 private:
  std::string weight_path(std::string_view name) const;
  Parameter declared(std::string_view name, std::vector<Axis> axes, const WeightInit& init) const;
  Weight shared_weight(Parameter parameter);
  Tensor one_layer(Weight weight, DType dtype) const;  // This iteration's slice if stacked.
  Tensor unplaced(Weight weight, DType dtype) const;

  friend class LayerScope;
  // The properties that a layer under construction takes from its parent.
  struct Construction {
    std::shared_ptr<ParameterTable> table;
    std::string name;
    int64_t stack = 0;
    std::string shared_path;
    bool frozen = false;
  };
  static Construction& construction();
  class ChildScope {
   public:
    ChildScope(const Layer& parent, std::string_view name, int64_t stack);

   private:
    PathScope path_;
    Restored<Construction> child_;
  };

  std::shared_ptr<ParameterTable> table_;
  std::string name_;  // Its name in its parent; "" for the outermost layer.
  std::string path_;
  int64_t stack_ = 0;
  std::string shared_path_;  // Replaces path_ in names of weights that are shared.
  DTypePolicy dtypes_;
  AxisRules rules_;
};

// While alive, nodes and errors carry the layer's path, and its own axis rules apply. Opened by
// LayerOf for every fprop; only a class with further entry points opens it itself.
class LayerScope {
 public:
  explicit LayerScope(const Layer& layer);

 private:
  std::optional<PathScope> path_;
  RulesScope rules_;
};

// A layer that is called with this signature. A kind of layer derives from it:
//
//   class UnaryLayer : public LayerOf<Tensor(Tensor x)> {
//
// and a layer of that kind overrides `Tensor fprop(Tensor x) const`.
template <typename Signature>
class LayerOf;

template <typename Result, typename... Inputs>
class LayerOf<Result(Inputs...)> : public Layer {
 public:
  Result operator()(Inputs... inputs) const {
    const LayerScope scope(*this);
    const auto call = [&]() -> Result { return fprop(std::forward<Inputs>(inputs)...); };
    if constexpr (std::same_as<Result, Tensor>)
      return returned("fprop()", calling(*this, "fprop()", call));
    else
      return calling(*this, "fprop()", call);
  }

 protected:
  using Layer::Layer;

 private:
  virtual Result fprop(Inputs... inputs) const = 0;
};

[[noreturn]] void fail_without_child();

// A layer below another one, which owns it: `ffn_(x)` calls it. Empty until assigned; an Error
// then.
template <typename Base>
class ChildLayer {
 public:
  ChildLayer() = default;
  explicit ChildLayer(std::unique_ptr<Base> layer) : layer_(std::move(layer)) {}

  template <typename... Inputs>
  decltype(auto) operator()(Inputs&&... inputs) const {
    return (*operator->())(std::forward<Inputs>(inputs)...);
  }
  const Base* operator->() const {
    if (layer_ == nullptr) fail_without_child();
    return layer_.get();
  }
  explicit operator bool() const { return layer_ != nullptr; }

 private:
  std::unique_ptr<Base> layer_;
};

// The most common kind: one tensor in, one out.
class UnaryLayer : public LayerOf<Tensor(Tensor x)> {
 protected:
  using LayerOf::LayerOf;
};

// The structure of a packed batch.
struct SequenceInfo {
  Tensor segment_ids;  // i32["batch seq"]; invalid: each row is one segment.
  Tensor positions;    // i32["batch seq"] or ["seq"], from 0: for rotary embeddings.
  // The output of an encoder, ["batch key_seq embed"], for cross-attention; invalid: no encoder.
  Tensor encoded;
  Tensor encoded_segment_ids;  // i32["batch key_seq"]; tokens see those of the same id.
};

// x["batch seq embed"] -> the same type: attention, transformer blocks and stacks of them.
class SequenceLayer : public LayerOf<Tensor(Tensor x, const SequenceInfo& sequence)> {
 protected:
  using LayerOf::LayerOf;
};

// Returns the width of an attention head: `own`, or an equal share of model_dims.
int64_t head_dims(const Field<int64_t>& own, int64_t model_dims, int64_t num_heads);
[[noreturn]] void fail_not_causal(std::string_view path);  // For a layer that is to decode.

}  // namespace tessera
