// SPDX-License-Identifier: Apache-2.0
// The policies of rematerialisation (remat.h; the named ones are Pax's). In: the text of a policy,
// and a traced graph with its marks. Out: for each value whether it is saved: by the kind of its
// op, or by its mark, also through aliases. Cost: one pass over the nodes for the marks, then one
// look-up for each value; for the results of a loop one pass over its body.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/printable.h"
#include "core/compile/remat/remat.h"
#include "core/graph/op.h"
#include "core/ops/repeat.h"
#include "core/ops/reshard.h"

namespace tessera {
namespace {

using Kind = RematPolicy::Kind;

struct NamedPolicy {
  std::string_view text;
  Kind kind;
  std::vector<std::string> names;
};

// The policies of Pax and the names that its layers mark.
const std::vector<NamedPolicy>& policies() {
  static const std::vector<NamedPolicy> table = {
      {"save_everything", Kind::kSaveEverything, {}},
      {"save_nothing", Kind::kSaveNothing, {}},
      {"save_dot_only", Kind::kSaveContractions, {}},
      {"save_dot_with_no_batch_dims", Kind::kSaveUnbatchedContractions, {}},
      {"save_qkv_out_proj", Kind::kSaveNamed, {"combined_qkv_proj", "out_proj"}},
      {"save_qkv_out_proj_separate",
       Kind::kSaveNamed,
       {"query_proj", "value_proj", "key_proj", "out_proj"}},
      {"save_out_proj", Kind::kSaveNamed, {"out_proj"}},
      {"save_context", Kind::kSaveNamed, {"context"}},
      {"save_context_and_out_proj", Kind::kSaveNamed, {"context", "out_proj"}},
      {"save_dot_for_mlperf_200b",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj"}},
      {"save_dot_except_logits_ffn1",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj",
        "ffn2"}},
      {"save_dot_except_logits",
       Kind::kSaveNamed,
       {"combined_qkv_proj", "query_proj", "value_proj", "key_proj", "context", "out_proj", "ffn1",
        "ffn2"}},
      {"save_iteration_input", Kind::kSaveNamed, {"iteration_input"}},
      {"save_transformer_layer_output", Kind::kSaveNamed, {"transformer_layer_out"}},
  };
  return table;
}

std::vector<std::string> comma_separated(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const size_t comma = text.find(',');
    std::string part(text.substr(0, comma));
    std::erase(part, ' ');
    if (part.empty()) fail("remat policy: an empty name in '{}'", shortened(text));
    parts.push_back(std::move(part));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

bool has_batch_axis(const Graph& graph, const Node& contraction) {
  const Type& a = graph.type(contraction.inputs[0]);
  const Type& b = graph.type(contraction.inputs[1]);
  const Type& result = graph.type(contraction.outputs[0]);
  return std::ranges::any_of(
      result.axes, [&](const Axis& axis) { return a.has(axis.name) && b.has(axis.name); });
}

// Collects the names of save_for_backward in the graph and its loops.
void collect_marks(const Graph& graph, std::set<std::string>& marks) {
  for (const Node& node : graph.nodes()) {
    if (node.op == &kSaveForBackwardOp) marks.insert(node.attributes.get(key::kName));
    for (const auto& body : node.bodies) collect_marks(*body, marks);
  }
}

const NamedPolicy* named_policy(const RematPolicy& wanted) {
  for (const NamedPolicy& policy : policies())
    if (policy.kind == wanted.kind && policy.names == wanted.names) return &policy;
  return nullptr;
}

}  // namespace

std::string RematPolicy::text() const {
  const NamedPolicy* policy = named_policy(*this);
  return policy != nullptr ? std::string(policy->text) : fmt::format("{}", fmt::join(names, ","));
}

void check_remat_names(const RematPolicy& policy, const Graph& traced) {
  if (named_policy(policy) != nullptr) return;
  std::set<std::string> marks;
  collect_marks(traced, marks);
  const std::vector<std::string> known(marks.begin(), marks.end());
  for (const std::string& name : policy.names)
    if (!marks.contains(name))
      fail(
          "remat_policy={}: the model saves no value '{}'{}; expected a policy such as "
          "save_nothing, or names of its values: {}",
          shortened(policy.text()), shortened(name), did_you_mean(name, known),
          fmt::join(known, ", "));
}

RematPolicy parse_remat_policy(std::string_view text) {
  std::vector<std::string> known;
  for (const NamedPolicy& policy : policies()) {
    if (policy.text == text) return {.kind = policy.kind, .names = policy.names};
    known.emplace_back(policy.text);
  }
  std::vector<std::string> names = comma_separated(text);
  for (const std::string& name : names) {
    if (!name.starts_with("save_")) continue;
    const std::string hint = did_you_mean(name, known);
    fail("unknown remat policy '{}'{}; expected one of {}, or a list of saved names",
         shortened(name), hint, fmt::join(known, ", "));
  }
  return {.kind = Kind::kSaveNamed, .names = std::move(names)};
}

bool is_alias(const Node& node) {
  return node.op->op_class == OpClass::kView || node.op->stops_gradient;
}

RematDecision::RematDecision(const Graph& graph, const RematPolicy& policy)
    : graph_(graph), policy_(policy) {
  for (const Node& node : graph.nodes()) {
    if (node.op != &kSaveForBackwardOp) continue;
    ValueId value = node.inputs[0];
    const std::string& name = node.attributes.get(key::kName);
    marks_.emplace(value, name);
    // A mark on an alias also marks its value.
    for (NodeId producer = graph.value(value).producer;
         producer != kNone && is_alias(graph.node(producer));
         producer = graph.value(value).producer) {
      value = graph.node(producer).inputs[0];
      marks_.emplace(value, name);
    }
  }
}

std::string RematDecision::mark(ValueId value) const {
  const auto found = marks_.find(value);
  return found == marks_.end() ? "" : found->second;
}

bool RematDecision::saves_loop_result(const Node& node, size_t result) const {
  const Loop loop(node);
  if (result < loop.carries()) return false;
  const ValueId inner = loop.slice_out(result - loop.carries());
  return loop.body().value(inner).producer != kNone && RematDecision(loop.body(), policy_)(inner);
}

bool RematDecision::operator()(ValueId value) const {
  const Node& producer = graph_.node(graph_.value(value).producer);
  if (is_alias(producer)) return false;
  if (is_repeat(producer) && policy_.kind != RematPolicy::Kind::kSaveNothing &&
      saves_loop_result(producer, graph_.value(value).result))
    return true;
  const bool contraction = producer.op->op_class == OpClass::kContraction;
  switch (policy_.kind) {
    case RematPolicy::Kind::kSaveEverything:
      return true;
    case RematPolicy::Kind::kSaveNothing:
      return false;
    case RematPolicy::Kind::kSaveNamed:
      return std::ranges::find(policy_.names, mark(value)) != policy_.names.end();
    case RematPolicy::Kind::kSaveContractions:
      return contraction;
    case RematPolicy::Kind::kSaveUnbatchedContractions:
      return contraction && !has_batch_axis(graph_, producer);
  }
  return false;
}

}  // namespace tessera
