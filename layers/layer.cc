// SPDX-License-Identifier: Apache-2.0
#include "layers/layer.h"

#include <algorithm>
#include <cctype>

#include "core/graph/layer_pieces.h"
#include "core/ops/fp8.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"
#include "layers/fprop_scope.h"

namespace tessera {

Layer::Construction& Layer::construction() {
  thread_local Construction current;
  return current;
}

Layer::ChildScope::ChildScope(const Layer& parent, std::string_view name, int64_t stack)
    : path_(name),
      child_(construction(),
             {parent.table_, std::string(name), stack > 0 ? stack : parent.stack_,
              parent.shared_path_.empty() ? "" : fmt::format("{}.{}", parent.shared_path_, name),
              construction().frozen}) {
  if (stack > 0 && parent.stack_ > 0)
    fail(
        "a Repeated layer cannot contain another ('{}' is below one); make the inner one a "
        "StackedTransformer",
        traced_path());
  if (stack > 0 && !parent.shared_path_.empty())
    fail("a Repeated layer cannot be shared ('{}'): its weights are a stack of their own",
         traced_path());
}

Layer::Layer(const LayerHParams& p)
    : table_(construction().table ? construction().table : std::make_shared<ParameterTable>()),
      name_(construction().name),
      path_(traced_path()),
      stack_(construction().stack),
      shared_path_(construction().shared_path),
      dtypes_(p.dtypes.get_or(DTypePolicy{})),
      rules_{parse_rules(p.rules.weights), parse_rules(p.rules.activations)} {
  if (p.shared_id) {
    const auto is_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    if (p.shared_id->empty() || !std::ranges::all_of(*p.shared_id, is_name))
      fail("shared_id={} is no name; expected letters, digits and _", *p.shared_id);
    shared_path_ = fmt::format("shared.{}", *p.shared_id);
  }
  if (!shared_path_.empty()) stack_ = 0;
}

std::string Layer::weight_path(std::string_view name) const {
  const std::string& path = shared_path_.empty() ? path_ : shared_path_;
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

Parameter Layer::declared(std::string_view name, std::vector<Axis> axes,
                          const WeightInit& init) const {
  Parameter parameter;
  parameter.path = weight_path(name);
  const ErrorContext where(parameter.path);
  for (const Axis& axis : axes)
    if (axis.size < 1)
      fail("axis {} of a weight has size {}, expected at least 1", axis.name, axis.size);
  const StreamPath stream = stream_path(parameter.path);
  parameter.random_path = stream.path;
  parameter.layer = stream.layer;
  parameter.stack = stack_;
  if (stack_ > 0) axes.insert(axes.begin(), Axis{std::string(kLayersAxis), stack_, {}});
  if (std::ranges::any_of(axes, [](const Axis& axis) { return !axis.split.empty(); }))
    parameter.layout = axes;
  for (Axis& axis : axes) axis.split.clear();
  parameter.rules = rules_.weights;
  parameter.type = make_type(dtypes_.param, std::move(axes));
  parameter.init = init;
  parameter.is_frozen = construction().frozen;
  return parameter;
}

Weight Layer::weight(std::string_view name, std::vector<Axis> axes, const WeightInit& init,
                     FanAxes fans) {
  Parameter parameter = declared(name, std::move(axes), init);
  parameter.fans = std::move(fans);
  return shared_path_.empty() ? Weight{table_->add(std::move(parameter))}
                              : shared_weight(std::move(parameter));
}

// The first of the layers that share it declares it.
Weight Layer::shared_weight(Parameter parameter) {
  const Parameter* const first = table_->find(parameter.path);
  if (first == nullptr) return {table_->add(std::move(parameter))};
  if (first->is_frozen != parameter.is_frozen)
    fail(
        "shared_id: {} is a weight of a teacher and of the model that learns from it, in '{}'; "
        "give one of them another shared_id",
        parameter.path, path_);
  if (first->type != parameter.type || !(first->init == parameter.init))
    fail(
        "shared_id: {} is {} with another size or initialiser than {} in '{}'; layers with one "
        "shared_id must have the same settings",
        parameter.path, first->type.text_sized(), parameter.type.text_sized(), path_);
  return {static_cast<int32_t>(first - table_->parameters().data())};
}

Weight Layer::balancing_weight(std::string_view name, Axis axis, std::string_view metric,
                               double rate) {
  if (!shared_path_.empty())
    fail("'{}' follows a metric of its layer, so the layer cannot have a shared_id", name);
  Parameter parameter = declared(name, {std::move(axis)}, zeros());
  parameter.type.dtype = DType::kF32;  // Steps of 0.001 would vanish in bf16.
  parameter.balanced_by = {
      path_.empty() ? std::string(metric) : fmt::format("{}.{}", path_, metric), rate};
  return {table_->add(std::move(parameter))};
}

Tensor Layer::stored(Weight weight, DType dtype) const {
  if (!weight.valid())
    fail(
        "{} reads a weight that it has not declared; declare it in the constructor: w_ = "
        "weight(\"w\", axes, init)",
        function_name(typeid(*this), "fprop()"));
  const FpropScope& scope = FpropScope::current();
  const bool is_cast = scope.cast_weights() != nullptr && dtype != dtypes_.param;
  return is_cast ? scope.cast_weights()->get(weight.index, dtype) : scope.parameter(weight.index);
}

Tensor Layer::returned(std::string_view function, const Tensor& result) const {
  if (!result.valid())
    fail_in(*this, function, "returned a Tensor without a value; expected the result of an op");
  return result;
}

void fail_without_child() {
  fail(
      "a layer is called that was not made; make it in the constructor of the layer above: ffn_ = "
      "child(\"ffn\", p.ffn_tpl)");
}

Tensor Layer::one_layer(Weight weight, DType dtype) const {
  const Tensor value = stored(weight, dtype);
  return table_->at(weight.index).stack > 0 ? loop_slice(value) : value;
}

Tensor Layer::unplaced(Weight weight, DType dtype) const {
  return cast_weight(one_layer(weight, dtype), dtype, dtypes_.reduce);
}

Tensor Layer::param_slice(Weight weight, std::string_view axis, int64_t index,
                          SourceSite site) const {
  const SiteScope from(site);
  const ErrorPrefix where(site.text());
  const Tensor part =
      reduce_sum(slice(one_layer(weight, dtypes_.compute), axis, index, index + 1), axis);
  return place(cast_weight(part, dtypes_.compute, dtypes_.reduce))
      .named(fmt::format("{}[{}={}]", table_->at(weight.index).path, axis, index));
}

Tensor Layer::param_part(Weight weight, std::string_view axis, int64_t begin, int64_t end,
                         SourceSite site) const {
  const SiteScope from(site);
  const ErrorPrefix where(site.text());
  const Tensor part = slice(one_layer(weight, dtypes_.compute), axis, begin, end);
  return place(cast_weight(part, dtypes_.compute, dtypes_.reduce))
      .named(fmt::format("{}[{}={}:{}]", table_->at(weight.index).path, axis, begin, end));
}

Tensor Layer::param(Weight weight, DType dtype, SourceSite site) const {
  const SiteScope from(site);
  const ErrorPrefix where(site.text());
  return place(unplaced(weight, dtype)).named(table_->at(weight.index).path);
}

Tensor Layer::param_like(Weight weight, const Tensor& partner, DType dtype, SourceSite site) const {
  const SiteScope from(site);
  const ErrorPrefix where(site.text());
  const Tensor value = unplaced(weight, dtype);
  Type type = value.type();
  for (Axis& axis : type.axes) {
    const int64_t shared = partner.type().find(axis.name);
    axis.split = shared < 0 ? std::vector<std::string>{}
                            : partner.type().axes[static_cast<size_t>(shared)].split;
  }
  return reshard(value, type).named(table_->at(weight.index).path);
}

Tensor Layer::layer_index() const {
  const size_t open = path_.rfind('[');
  if (open == std::string::npos)
    fail("'{}' is in no stack of layers (StackedTransformer, Repeated): it has no index", path_);
  if (path_[open + 1] != ']')
    return constant(static_cast<double>(std::stoll(path_.substr(open + 1))), DType::kI32);
  const BodyScope* const body = innermost_body();
  if (body == nullptr || body->axis().name != kLayersAxis)
    fail("layer_index() is called in a loop of '{}' itself; call it before that loop", path_);
  return body->index();
}

Tensor Layer::product(Operand x, const Tensor& w, const Over& contracted) const {
  const bool fp8 = dtypes_.matmul == MatmulPrecision::kFp8 && !FpropScope::decodes();
  return fp8 ? fp8_product(x, {w, x.site}, contracted) : einsum(x, {w, x.site}, contracted);
}

int64_t head_dims(const Field<int64_t>& own, int64_t model_dims, int64_t num_heads) {
  if (!own.has() && model_dims % num_heads != 0)
    fail("num_heads={} does not divide model_dims={}; change one, or set dims_per_head", num_heads,
         model_dims);
  return own.get_or(model_dims / num_heads);
}

void fail_not_causal(std::string_view path) {
  fail(
      "{} is not causal: its output for a token depends on later tokens, so it cannot decode "
      "token by token; set causal=true",
      path);
}

LayerScope::LayerScope(const Layer& layer)
    : path_(layer.name_.empty() ? std::optional<PathScope>()
                                : std::optional<PathScope>(std::in_place, layer.name_)),
      rules_(FpropScope::decodes() ? without_sequence(layer.rules_) : layer.rules_) {}

}  // namespace tessera
