// SPDX-License-Identifier: Apache-2.0
// Layer: what every layer and model derives from. A constructor declares weights and children from
// HParams; `fprop` (each layer's own signature) computes with tensors of the graph being traced. A
// layer holds no numbers and knows no devices, collectives or gradients.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/graph/tensor.h"
#include "core/graph/trace.h"
#include "core/hparams/fields.h"
#include "core/hparams/layer_params.h"
#include "core/hparams/template.h"
#include "layers/parameter.h"

namespace tessera {

// A weight of a layer: its place in the model's ParameterTable.
struct Weight {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
};

class Layer {
 public:
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // The whole model's weights, whichever layer of it is asked.
  const ParameterTable& parameters() const { return *table_; }
  const std::string& path() const { return path_; }
  const DTypePolicy& dtypes() const { return dtypes_; }

 protected:
  explicit Layer(const Field<DTypePolicy>& dtypes, const LayerRules& rules = {});

  // Declares a weight of these axes. In a layer under Repeated it is stacked on `layers`. Axes that
  // carry splits lie so at rest, whatever the rules.
  Weight weight(std::string_view name, std::vector<Axis> axes, const WeightInit& init,
                FanAxes fans = {});

  // Makes a layer below this one; its path is this one's and `name`.
  template <typename Base>
  std::unique_ptr<Base> child(std::string_view name, const Template<Base>& layer_tpl) {
    const ChildScope scope(*this, name, 0);
    return layer_tpl.instantiate();
  }
  // The same, with every weight below stacked `count` times (see layers/repeated.h).
  template <typename Base>
  std::unique_ptr<Base> stacked_child(std::string_view name, int64_t count,
                                      const Template<Base>& layer_tpl) {
    const ChildScope scope(*this, name, count);
    return layer_tpl.instantiate();
  }

  // The weight as the layer computes with it: this iteration's slice if stacked, cast to `dtype`
  // (the compute dtype) and only then placed, so that a gather moves the smaller bytes.
  // What that costs is said of the line that asks.
  Tensor param(Weight weight, SourceSite site = SourceSite::current()) const {
    return param(weight, dtypes_.compute, site);
  }
  Tensor param(Weight weight, DType dtype, SourceSite site = SourceSite::current()) const;
  // Number `index` along an axis of it, parted before it moves, so that its gradient is scattered
  // as a weight's is.
  Tensor param_part(Weight weight, std::string_view axis, int64_t index,
                    SourceSite site = SourceSite::current()) const;
  // The weight as it lies, whole if stacked, in its own dtype or, where it is kept in that one as
  // well, in `dtype`: for models that write out layouts.
  Tensor stored(Weight weight, DType dtype) const;
  // A bias or scale for `partner`, laid out as the axes they share are there.
  Tensor param_like(Weight weight, const Tensor& partner,
                    SourceSite site = SourceSite::current()) const {
    return param_like(weight, partner, dtypes_.compute, site);
  }
  Tensor param_like(Weight weight, const Tensor& partner, DType dtype,
                    SourceSite site = SourceSite::current()) const;

 private:
  Tensor one_layer(Weight weight, DType dtype) const;  // This iteration's slice if stacked.
  Tensor unplaced(Weight weight, DType dtype) const;

  friend class LayerScope;

  class ChildScope {
   public:
    ChildScope(const Layer& parent, std::string_view name, int64_t stack);
    ~ChildScope();
    ChildScope(const ChildScope&) = delete;
    ChildScope& operator=(const ChildScope&) = delete;

   private:
    PathScope path_;
    struct Saved;
    std::unique_ptr<Saved> saved_;
  };

  std::shared_ptr<ParameterTable> table_;
  std::string name_;  // What its parent calls it; "" for the outermost layer.
  std::string path_;
  int64_t stack_ = 0;
  DTypePolicy dtypes_;
  AxisRules rules_;
};

// Opened on the first line of every fprop: nodes and errors below carry the layer's path, and its
// own axis rules are in force.
class LayerScope {
 public:
  explicit LayerScope(const Layer& layer);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  std::unique_ptr<PathScope> path_;
  RulesScope rules_;
};

// The commonest signature: one tensor in, one out.
class UnaryLayer : public Layer {
 public:
  virtual Tensor fprop(Tensor x) const = 0;

 protected:
  using Layer::Layer;
};

}  // namespace tessera
