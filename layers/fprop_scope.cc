// SPDX-License-Identifier: Apache-2.0
#include "layers/fprop_scope.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/generator.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

thread_local const FpropScope* innermost = nullptr;

std::string state_name(const Parameter& parameter, DType dtype) {
  return fmt::format("cache/{}/{}", dtype_name(dtype), parameter.path);
}

// Returns whether layers are split. A loop over `layers` needs them all.
bool has_split_layers(const Type& type) {
  return type.rank() > 0 && type.axes.front().name == kLayersAxis &&
         !type.axes.front().split.empty();
}

Tensor with_all_layers(const Tensor& parameter) {
  if (!has_split_layers(parameter.type())) return parameter;
  const std::string& name = parameter.graph()->value(parameter.id()).name;
  return whole_along(parameter, kLayersAxis).named(name);
}

std::vector<Tensor> all_with_all_layers(std::vector<Tensor> parameters) {
  for (Tensor& parameter : parameters) parameter = with_all_layers(parameter);
  return parameters;
}

}  // namespace

const Tensor& Features::get(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [each, tensor] : tensors) names.push_back(each);
  fail("the batch has no feature '{}'{} (it has: {})", name, did_you_mean(name, names),
       fmt::join(names, ", "));
}

Tensor Features::find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

FpropScope::FpropScope(std::vector<Tensor> parameters, const Features& features, DecodeCache* cache,
                       CastWeights* cast_weights)
    : parameters_(all_with_all_layers(std::move(parameters))),
      mode_(features.mode),
      step_(features.step),
      segment_ids_(features.find("segment_ids")),
      cache_(cache),
      cast_weights_(cast_weights),
      innermost_(innermost, this) {}

FpropScope::FpropScope(const FpropScope& outer, Mode mode, Tensor segment_ids)
    : parameters_(outer.parameters_),
      mode_(mode),
      step_(outer.step_),
      segment_ids_(std::move(segment_ids)),
      cache_(nullptr),
      cast_weights_(outer.cast_weights_),
      innermost_(innermost, this) {}

const FpropScope& FpropScope::current() {
  if (innermost == nullptr)
    fail(
        "a weight is read outside of fprop; a constructor declares weights, and fprop reads them "
        "(tests call a layer in an FpropScope)");
  return *innermost;
}

bool FpropScope::decodes() { return innermost != nullptr && innermost->cache_ != nullptr; }

const Tensor& FpropScope::parameter(int32_t index) const {
  if (index < 0 || index >= static_cast<int32_t>(parameters_.size()))
    fail("weight {} of {} is read; a layer reads the weights of its own model", index,
         parameters_.size());
  return parameters_[static_cast<size_t>(index)];
}

Tensor FpropScope::token_mask(const Tensor& x) const {
  if (cache_ != nullptr) return cache_->token_mask(x);
  if (!segment_ids_.valid()) return {};
  Type type = segment_ids_.type();
  for (Axis& axis : type.axes) {
    if (!x.has(axis.name) || x.size(axis.name) != axis.size) return {};
    axis.split = x.type().axis(axis.name).split;
  }
  return less(constant(0.0, DType::kI32), reshard(segment_ids_, type));
}

DecodeCache::DecodeCache(Tensor starts, Tensor last, Tensor tokens, int64_t length,
                         std::string_view name, bool encodes)
    : graph_(traced_graph()),
      prefix_(name.empty() ? "cache/" : fmt::format("cache/{}/", name)),
      starts_(std::move(starts)),
      last_(std::move(last)),
      tokens_(std::move(tokens)),
      length_(length),
      encodes_(encodes) {
  if (length < 1) fail("the decode cache has {} positions, expected at least 1", length);
}

Tensor DecodeCache::positions(int64_t seq) const {
  const Tensor last = constant(static_cast<double>(length_ - 1), DType::kI32);
  return minimum(starts_ + iota({"seq", seq, {}}), last).named("positions");
}

Tensor DecodeCache::token_mask(const Tensor& x) const {
  const Tensor number = iota(x.type().axis("seq"));
  const Tensor is_placed = less_equal(constant(0.0, DType::kI32), like_batch(starts_, x) + number);
  return logical_and(is_placed, less_equal(number, like_batch(last_, x)));
}

Tensor DecodeCache::like_batch(const Tensor& per_row, Operand x) const {
  return reshard({per_row, x.site}, make_type(DType::kI32, {x.tensor.type().axis("batch")}));
}

Tensor DecodeCache::starts_like(Operand x) const { return like_batch(starts_, x); }
Tensor DecodeCache::last_like(Operand x) const { return like_batch(last_, x); }
Tensor DecodeCache::tokens_like(Operand x) const { return like_batch(tokens_, x); }

Tensor DecodeCache::extended(std::string_view name, const Tensor& rows) {
  const Type& from = rows.type();
  const Type type = make_type(
      rows.dtype(),
      {from.axis("batch"), from.axis("kv_heads"), {"key_seq", length_, {}}, from.axis("head_dim")});
  const Tensor starts = starts_like(rows);
  return next_state(name, type,
                    [&](const Tensor& cache) { return cache_update(cache, rows, starts); });
}

Tensor DecodeCache::updated(std::string_view name, const Type& type,
                            const std::function<Tensor(const Tensor&)>& update, double initial) {
  if (type.rank() == 0 || type.axes.front().name != "batch")
    fail("the decoding state '{}' is {}, expected the axis batch first: a row has its own state",
         name, type.text());
  return next_state(name, type, [&](const Tensor& state) {
    const Tensor none = constant(0.0, DType::kI32);
    const Tensor earlier =
        where(less(none, starts_like(state)), state, constant(initial, type.dtype));
    const Tensor next = update(earlier);
    if (next.type() != type)
      fail("the decoding state '{}' is {}, but its update returns {}; cast or place that", name,
           type.text_sized(), next.type().text_sized());
    return where(less_equal(none, like_batch(last_, state)), next, state);
  });
}

Tensor DecodeCache::kept(std::string_view name, const Tensor& value) {
  if (!encodes_) return next_state(name, value.type(), {});
  return next_state(name, value.type(), [&](const Tensor& state) {
    const Tensor none = constant(0.0, DType::kI32);
    return where(less_equal(none, like_batch(last_, state)), value, state);
  });
}

// Adds the state as an input of the graph and `next` of it as its update; without it, none.
Tensor DecodeCache::next_state(std::string_view name, const Type& type,
                               const std::function<Tensor(const Tensor&)>& next) {
  const std::string& path = traced_path();
  const std::string state = fmt::format("{}{}{}{}", prefix_, path, path.empty() ? "" : "/", name);
  BodyScope* const body = innermost_body();
  Type whole = type;
  if (body != nullptr) whole.axes.insert(whole.axes.begin(), body->axis());
  const Tensor cache(&graph_, graph_.add_input(state, InputKind::kState, whole));
  cache.named(state);
  const Tensor before = body == nullptr ? cache : body->slice(cache);
  if (!next) return before;
  const Tensor after = next(before);
  const auto update = [&graph = graph_, state](const std::vector<Tensor>& values) {
    graph.add_update(state, values[0].id());
  };
  if (body == nullptr) {
    update({after});
  } else {
    body->stack({after}, update);
  }
  return after;
}

CastWeights::CastWeights(const ParameterTable& table) : graph_(traced_graph()), table_(table) {}

Tensor CastWeights::get(int32_t index, DType dtype) {
  Tensor& tensor = made_[{index, dtype}];
  if (tensor.valid()) return tensor;
  const Parameter& parameter = table_.at(index);
  Type type = stored_type(parameter);
  type.dtype = dtype;
  if (has_split_layers(type)) type.axes.front().split.clear();
  const std::string name = state_name(parameter, dtype);
  tensor = Tensor(&graph_, graph_.add_input(name, InputKind::kState, type));
  tensor.named(parameter.path);
  return tensor;
}

void CastWeights::trace_casts(const Graph& reader, const ParameterTable& table,
                              const std::vector<Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = table.at(static_cast<int32_t>(i));
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const GraphInput* state = reader.find_input(state_name(parameter, dtype));
      if (state == nullptr) continue;
      input(state->name, InputKind::kState, reader.type(state->value));
      traced_graph().add_update(state->name, with_all_layers(cast(parameters[i], dtype)).id());
    }
  }
}

AxisRules without_sequence(AxisRules rules) {
  std::erase_if(rules.activations, [](const AxisRule& rule) { return rule.axis == "seq"; });
  return rules;
}

// A mask and a sum with one nonzero term: exact, whatever the other tokens are.
Tensor at_last(Operand x, const Tensor& last) {
  if (x.tensor.size("seq") == 1) return reduce_sum(x, "seq");
  const Tensor number = iota({"seq", x.tensor.size("seq"), {}});
  return reduce_sum(mask(x, equal(last, number)), "seq");
}

}  // namespace tessera
