// SPDX-License-Identifier: Apache-2.0
// The gradient of every accepted op is accepted: each op in every layout that its type rule
// accepts, with every cotangent that docs/graph.md allows. Values are tested in tests/core/backend.
#include <algorithm>
#include <map>
#include <set>

#include "core/graph/op.h"
#include "core/graph/typing.h"
#include "core/graph/verify.h"
#include "core/ops/attention.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/cross_entropy_shard.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/random.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "core/ops/rotary.h"
#include "core/ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

// An op applied to operands of these types, in every layout of them.
struct Subject {
  std::string op;
  std::vector<std::string> operands;
  Application apply;
};

const std::string kX = "f32[\"b=8 e=8\"]";
const std::string kVector = "f32[\"e=8\"]";

template <typename Function>
Subject unary(const std::string& name, Function function) {
  return {name, {kX}, [function](T t) { return function(t[0]); }};
}
template <typename Function>
Subject binary(const std::string& name, Function function) {
  return {name, {kX, kVector}, [function](T t) { return function(t[0], t[1]); }};
}

std::vector<Subject> elementwise_subjects() {
  return {
      unary("neg", neg),
      unary("scale", [](const Tensor& x) { return scale(x, 2.0); }),
      unary("stop_gradient", stop_gradient),
      unary("cast", [](const Tensor& x) { return cast(x, DType::kBF16, CastPartial::kThrough); }),
      unary("exp", exp),
      unary("log", log),
      unary("sqrt", sqrt),
      unary("rsqrt", rsqrt),
      unary("square", square),
      unary("abs", abs),
      unary("sign", sign),
      unary("sin", sin),
      unary("cos", cos),
      unary("erf", erf),
      unary("tanh", tanh),
      unary("sigmoid", sigmoid),
      unary("relu", relu),
      unary("softplus", softplus),
      unary("silu", silu),
      unary("gelu", gelu),
      unary("gelu_tanh", gelu_tanh),
      binary("add", add),
      binary("sub", sub),
      binary("mul", mul),
      binary("div", div),
      binary("pow", pow),
      binary("maximum", maximum),
      binary("minimum", minimum),
      {"where", {"bool[\"b=8\"]", kX, kVector}, [](T t) { return where(t[0], t[1], t[2]); }},
      {"mask", {kX, "bool[\"b=8\"]"}, [](T t) { return mask(t[0], t[1]); }}};
}

std::vector<Subject> primitive_subjects() {
  return {{"einsum", {kX, "f32[\"e=8 m=8\"]"}, [](T t) { return einsum(t[0], t[1], over("e")); }},
          {"einsum",
           {"f32[\"h=8 q=8 d=8\"]", "f32[\"h=8 k=8 d=8\"]"},
           [](T t) { return einsum("h q d, h k d -> k h q", t[0], t[1]); }},
          {"einsum", {kVector, kVector}, [](T t) { return einsum(t[0], t[1], over("e")); }},
          unary("reduce_sum", [](const Tensor& x) { return reduce_sum(x, "b"); }),
          unary("broadcast",
                [](const Tensor& x) {
                  return broadcast(x, {{"n", 8, {"mdl"}}}, "b n e");
                }),
          {"gather",
           {"f32[\"v=8 e=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) { return gather(t[0], t[1], "v"); }},
          {"scatter_add",
           {"f32[\"b=8 s=8 e=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) {
             return scatter_add(t[0], t[1], {"v", 8, {"mdl"}});
           }},
          {"pick",
           {"f32[\"b=8 v=8 s=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) { return pick(t[0], t[1], "v"); }},
          unary("rename", [](const Tensor& x) { return rename(x, "e", "k"); }),
          unary("transpose", [](const Tensor& x) { return transpose(x, "e b"); }),
          unary("split_axis",
                [](const Tensor& x) {
                  return split_axis(x, "e", {"h", 4}, {"d", 2});
                }),
          unary("merge_axes", [](const Tensor& x) { return merge_axes(x, "b", "e", "m"); }),
          unary("slice", [](const Tensor& x) { return slice(x, "b", 2, 6); }),
          unary("pad", [](const Tensor& x) { return pad(x, "b", 2, 6); }),
          {"concat", {kX, kX}, [](T t) { return concat(t, "b"); }},
          unary("shift_right", [](const Tensor& x) { return shift_right(x, "b", 0.0); }),
          unary("save_for_backward", [](const Tensor& x) { return save_for_backward(x, "x"); }),
          unary("reshard", [](const Tensor& x) { return reshard(x, "b/data/mdl e"); }),
          unary("reshard", [](const Tensor& x) { return reshard(x, "b/mdl e/data"); }),
          unary("reshard", [](const Tensor& x) { return reshard(x, "b e/data + sum(mdl)"); }),
          unary("reshard", [](const Tensor& x) { return reshard(x, "b e + sum(data)"); }),
          unary("reshard", [](const Tensor& x) { return reshard(x, "b e"); })};
}

std::vector<Subject> composite_subjects() {
  return {unary("softmax", [](const Tensor& x) { return softmax(x, "e"); }),
          {"rms_norm", {kX, kVector}, [](T t) { return rms_norm(t[0], t[1], "e", 1e-6); }},
          {"layer_norm",
           {kX, kVector, kVector},
           [](T t) { return layer_norm(t[0], t[1], t[2], "e", 1e-6); }},
          {"rotary",
           {"f32[\"b=8 s=8 d=8\"]", "i32[\"s=8\"]"},
           [](T t) { return rotary(t[0], t[1], "d"); }},
          {"cross_entropy",
           {"f32[\"b=8 v=8\"]", "i32[\"b=8\"]"},
           [](T t) { return cross_entropy(t[0], t[1], "v").loss; }},
          {"cross_entropy_shard",
           {"f32[\"b=8 v=8\"]", "i32[\"b=8\"]"},
           [](T t) {
             const Tensor maximum = constant(1.0, DType::kF32, t[1].type().axes);
             return cross_entropy_shard(t[0], t[1], maximum, "v", 3.0, ShardTotal::kOfLogits);
           }},
          {"attention",
           {"f32[\"batch=8 seq=8 heads=8 head_dim=8\"]",
            "f32[\"batch=8 key_seq=8 kv_heads=8 head_dim=8\"]",
            "f32[\"batch=8 key_seq=8 kv_heads=8 head_dim=8\"]"},
           [](T t) { return attention(t[0], t[1], t[2], {}); }},
          {"dropout", {kX, "i32[\"\"]"}, [](T t) { return dropout(t[0], 0.5, t[1]); }}};
}

// Layouts of all operands together: all combinations for one or two operands, and for more the ones
// in which each mesh axis splits one name wherever it occurs.
std::vector<std::vector<Type>> operand_layouts(const Subject& subject, const Mesh& mesh) {
  std::vector<Type> plain;
  for (const std::string& text : subject.operands) plain.push_back(parse_type(text));
  std::vector<std::vector<Type>> combinations = {{}};
  if (plain.size() <= 2) {
    for (const Type& type : plain) {
      std::vector<std::vector<Type>> longer;
      const Partials partials = is_floating(type.dtype) ? Partials::kSums : Partials::kNone;
      for (const std::vector<Type>& combination : combinations) {
        for (const Type& layout : all_layouts(type, mesh, partials)) {
          longer.push_back(combination);
          longer.back().push_back(layout);
        }
      }
      combinations = std::move(longer);
    }
    return combinations;
  }
  combinations = {plain};
  for (const MeshAxis& mesh_axis : mesh.axes()) {
    std::set<std::string> names;
    for (const Type& type : plain) {
      for (const Axis& axis : type.axes) names.insert(axis.name);
    }
    const std::vector<std::vector<Type>> without = combinations;
    for (const std::vector<Type>& base : without) {
      for (const std::string& name : names) {
        std::vector<Type> split = base;
        for (Type& type : split) {
          for (Axis& axis : type.axes) {
            if (axis.name == name) axis.split.push_back(mesh_axis.name);
          }
        }
        combinations.push_back(std::move(split));
      }
    }
  }
  return combinations;
}

// Per mesh axis: split if the primal is, replicated if it is partial, replicated or partial if it
// is replicated.
bool obeys_the_rule(const Type& cotangent, const Type& primal) {
  if (cotangent.axes != primal.axes || cotangent.dtype != primal.dtype) return false;
  for (const std::string& mesh_axis : cotangent.partial.mesh_axes) {
    if (split_over(primal, mesh_axis) || primal.partial.over(mesh_axis)) return false;
  }
  return cotangent.partial.kind != PartialKind::kMax;
}

// Differentiates the node of `result`, with a cotangent of this type for it alone.
void check_gradient(Trial& trial, const Tensor& result, const Type& cotangent) {
  const Node node = trial.graph().node(trial.graph().value(result.id()).producer);
  std::vector<Tensor> inputs, outputs, cotangents;
  for (const ValueId id : node.inputs) inputs.emplace_back(&trial.graph(), id);
  for (const ValueId id : node.outputs) {
    outputs.emplace_back(&trial.graph(), id);
    cotangents.emplace_back();
  }
  const size_t index = static_cast<size_t>(trial.graph().value(result.id()).result);
  cotangents[index] = input("dy", InputKind::kBatch, cotangent);
  const std::vector<Tensor> gradients = node.op->vjp({node, inputs, outputs, cotangents});
  REQUIRE(gradients.size() == inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!gradients[i].valid()) continue;
    INFO("operand " << i << " is " << inputs[i].type().text() << ", its cotangent "
                    << gradients[i].type().text());
    REQUIRE(obeys_the_rule(gradients[i].type(), inputs[i].type()));
  }
  verify(trial.graph(), trial.mesh(), "the gradient");
}

// Autodiff keeps a cotangent partial only at reshards, parameters and their linear views, so
// gradients of composite ops never see partial cotangents.
enum class Cotangents { kAll, kWhole };

// The number of layouts the op accepted.
int check_subject(const Subject& subject, const Mesh& mesh, Cotangents cotangents) {
  int accepted = 0;
  for (const std::vector<Type>& layouts : operand_layouts(subject, mesh)) {
    std::vector<std::string> types;
    for (const Type& layout : layouts) types.push_back(layout.text_sized());
    if (outcome(mesh, types, subject.apply).find('[') > 4) continue;  // Not "f32[…": refused.
    ++accepted;
    const auto result_type = [&] {
      const Trial trial(mesh, types);
      return subject.apply(trial.inputs()).type();
    }();
    for (const Type& cotangent : cotangent_layouts(result_type, mesh)) {
      if (cotangent.partial && cotangents == Cotangents::kWhole) continue;
      INFO(subject.op << ", cotangent " << cotangent.text());
      for (const std::string& type : types) UNSCOPED_INFO(type);
      Trial trial(mesh, types);
      const Tensor result = subject.apply(trial.inputs());
      if (trial.graph().nodes().empty()) continue;  // A reshard to its own layout.
      check_gradient(trial, result, cotangent);
    }
  }
  return accepted;
}

void check(const std::vector<Subject>& subjects, Cotangents cotangents) {
  const Mesh mesh({{"data", 2}, {"mdl", 2}});
  for (const Subject& subject : subjects) {
    INFO(subject.op);
    REQUIRE(check_subject(subject, mesh, cotangents) > 0);
  }
}

TEST_CASE("Gradients of accepted elementwise ops are accepted") {
  check(elementwise_subjects(), Cotangents::kAll);
}
TEST_CASE("Gradients of accepted primitive ops are accepted") {
  check(primitive_subjects(), Cotangents::kAll);
}
TEST_CASE("Gradients of accepted composite ops are accepted") {
  check(composite_subjects(), Cotangents::kWhole);
}

TEST_CASE("This test covers every op with a gradient") {
  std::set<std::string_view> tried;
  for (const auto& subjects :
       {elementwise_subjects(), primitive_subjects(), composite_subjects()}) {
    for (const Subject& subject : subjects) tried.insert(find_op(subject.op).name);
  }
  for (const OpDef* op : all_ops()) {
    INFO(op->name);
    if (op->vjp != nullptr) REQUIRE(tried.contains(op->name));
  }
}

}  // namespace
}  // namespace tessera
