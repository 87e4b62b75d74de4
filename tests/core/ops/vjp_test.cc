// SPDX-License-Identifier: Apache-2.0
// The gradient of every accepted op is accepted: each op in every layout that its type rule
// accepts, with every cotangent that docs/graph.md allows. Values are tested in tests/core/devices.
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "core/check/op_cases.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/typing.h"
#include "core/graph/verify.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/grouped_product.h"
#include "core/ops/layout.h"
#include "core/ops/order.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
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

// Every scalar function; the operands after the first lack an axis.
std::vector<Subject> elementwise_subjects() {
  std::vector<Subject> subjects = {
      unary("scale", [](const Tensor& x) { return scale(x, 2.0); }),
      unary("cast", [](const Tensor& x) { return cast(x, DType::kBF16, CastPartial::kThrough); })};
  for (const OpDef* op : all_ops()) {
    if (op->element.apply == nullptr || op->vjp == nullptr) continue;
    Subject subject{std::string(op->name), {}, [op](T t) {
                      return trace_op(*op, t, {}, SourceSite::current());
                    }};
    std::string numbers = kX;
    for (const Domain domain : op->element.operands) {
      if (domain == Domain::kAbsent) break;
      subject.operands.push_back(domain == Domain::kBool ? "bool[\"b=8\"]" : numbers);
      if (domain != Domain::kBool) numbers = kVector;
    }
    subjects.push_back(subject);
  }
  return subjects;
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
          {"grouped_product",
           {"f32[\"b=8 e=8\"]", "f32[\"x=8 e=8 m=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) { return grouped_product(t[0], t[1], t[2], "x", over("e")); }},
          {"grouped_outer_product",
           {"f32[\"b=8 e=8\"]", "f32[\"b=8 s=8 m=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) {
             return grouped_outer_product(t[0], t[1], t[2], {"x", 8, {"mdl"}});
           }},
          {"pick",
           {"f32[\"b=8 v=8 s=8\"]", "i32[\"b=8 s=8\"]"},
           [](T t) { return pick(t[0], t[1], "v"); }},
          {"pick",
           {"f32[\"b=8 v=8 s=8\"]", "i32[\"b=8 k=8 s=8\"]"},
           [](T t) { return pick(t[0], t[1], "v"); }},
          {"pick",
           {"f32[\"b=8 v=8 s=8\"]", "i32[\"b=8 v=4 s=8\"]"},
           [](T t) { return pick(t[0], t[1], "v"); }},
          {"scatter_along",
           {"f32[\"b=8 k=8 s=8\"]", "i32[\"b=8 k=8 s=8\"]"},
           [](T t) {
             return scatter_along(t[0], t[1], "k", {"v", 8, {"mdl"}});
           }},
          unary("cumulative_sum", [](const Tensor& x) { return cumulative_sum(x, "b"); }),
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

// The last test case of each composite op, with axes that the mesh divides.
std::vector<Subject> composite_subjects() {
  std::map<const OpDef*, Subject> by_op;
  for (const OpCase& row : composite_cases()) {
    if (row.op->vjp == nullptr) continue;
    Subject subject{
        std::string(row.op->name), {}, [build = row.build](T t) { return build(t)[0]; }};
    for (const std::string& type : row.inputs)
      subject.operands.push_back(
          std::regex_replace(type_with(type, "f32"), std::regex("=[0-9]+"), "=8"));
    by_op[row.op] = subject;
  }
  std::vector<Subject> subjects;
  for (const auto& [op, subject] : by_op) subjects.push_back(subject);
  return subjects;
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
