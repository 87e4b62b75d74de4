// SPDX-License-Identifier: Apache-2.0
// The typing table (docs/graph.md), row by row: accepted operands, results and error messages, on a
// mesh of eight devices and, with the same messages, on a mesh of one.
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/gather.h"
#include "core/ops/generator.h"
#include "core/ops/layout.h"
#include "core/ops/norm.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using T = const std::vector<Tensor>&;

struct Row {
  std::string op;
  std::vector<std::string> inputs;
  Application apply;
  std::string outcome;
};

void run(const std::vector<Row>& rows) {
  const Mesh many = Mesh::standard({1, 2, 4});
  const Mesh one = Mesh::standard({1, 1, 1});
  for (const Row& row : rows) {
    INFO(row.op);
    for (const std::string& type : row.inputs) UNSCOPED_INFO(type);
    REQUIRE(outcome(many, row.inputs, row.apply) == row.outcome);
    REQUIRE(without_numbers(outcome(one, row.inputs, row.apply)) == without_numbers(row.outcome));
  }
}

// A row for each list of operands with its outcome.
using Cases = std::vector<std::pair<std::vector<std::string>, std::string>>;
void run(const std::string& op, const Application& apply, const Cases& cases) {
  std::vector<Row> rows;
  for (const auto& [inputs, outcome] : cases) rows.push_back({op, inputs, apply, outcome});
  run(rows);
}

// Types used throughout; b, s, e, m and v are axes, sums and maxima over mdl unless named.
const std::string kWhole = "f32[\"b=8 e=16\"]";
const std::string kSplit = "f32[\"b=8 e/mdl=16\"]";
const std::string kSum = "f32[\"b=8 e=16\" + sum(mdl)]";
const std::string kSumData = "f32[\"b=8 e=16\" + sum(data)]";
const std::string kMax = "f32[\"b=8 e=16\" + max(mdl)]";
const std::string kVector = "f32[\"e=16\"]";
const std::string kSplitVector = "f32[\"e/mdl=16\"]";
const std::string kSumVector = "f32[\"e=16\" + sum(mdl)]";
const std::string kScalar = "f32[\"\"]";

TEST_CASE("einsum: layouts of kept, shared and contracted axes") {
  run("einsum over e", [](T t) { return einsum(t[0], t[1], over("e")); },
      {{{"f32[\"b/data=8 e=16\"]", "f32[\"e=16 m/mdl=32\"]"}, "f32[\"b/data m/mdl\"]"},
       {{kSplit, "f32[\"e/mdl=16 m=32\"]"}, "f32[\"b m\" + sum(mdl)]"},
       {{"f32[\"b=8 e/mdl/data=16\"]", "f32[\"e/mdl/data=16 m=32\"]"},
        "f32[\"b m\" + sum(data, mdl)]"},
       {{kSum, "f32[\"e=16 m=32\"]"}, "f32[\"b m\" + sum(mdl)]"},
       {{kSum, "f32[\"e/data=16 m=32\"]"},
        "einsum: x has e, y has e/data; reshard x to e/data (free slice) or gather y"},
       {{"f32[\"b=8 e/data=16\" + sum(mdl)]", "f32[\"e/data=16 m=32\"]"},
        "f32[\"b m\" + sum(data, mdl)]"},
       {{kSum, "f32[\"e=16 m=32\" + sum(data)]"}, "f32[\"b m\" + sum(data, mdl)]"},
       {{kSplit, "f32[\"e=16 m=32\"]"},
        "einsum: x has e/mdl, y has e; reshard y to e/mdl (free slice) or gather x"},
       {{"f32[\"b=8 e/mdl/data=16\"]", "f32[\"e/data/mdl=16 m=32\"]"},
        "einsum: e is split mdl/data in x, data/mdl in y; order counts; reshard one"},
       {{kSplit, "f32[\"e/data=16 m=32\"]"}, "einsum: x has e/mdl, y has e/data; reshard one"},
       {{"f32[\"b/data=8 e=16\"]", "f32[\"e=16 m/data=32\"]"},
        "einsum: result uses data for both b and m; place(y)"},
       {{kSum, "f32[\"e=16 m=32\" + sum(mdl)]"},
        "einsum: both operands are partial over mdl; place(y)"},
       {{kSum, "f32[\"e=16 m/mdl=32\"]"},
        "einsum: x is partial over mdl, which splits m of y; place(x)"},
       {{kMax, "f32[\"e=16 m=32\"]"},
        "einsum: x is a partial max over mdl; reshard it to replicated"},
       {{kWhole, "f32[\"e=32 m=32\"]"},
        "einsum: e is 16 in x and 32 in y; axes of one name have one size"},
       {{kWhole, "bf16[\"e=16 m=32\"]"}, "einsum: x is f32, y is bf16; cast one"},
       {{kWhole, "i32[\"e=16 m=32\"]"}, "einsum: y is i32, expected a floating dtype; cast it"},
       {{kWhole, "f32[\"s=4 m=32\"]"}, "einsum: y has no axis 'e': it is f32[\"s m\"]"}});
  run("einsum with a batch axis", [](T t) { return einsum(t[0], t[1], over("e")); },
      {{{"f32[\"h/mdl=8 s=4 e=16\"]", "f32[\"h/mdl=8 e=16 k=4\"]"}, "f32[\"h/mdl s k\"]"},
       {{"f32[\"h/mdl=8 s=4 e=16\"]", "f32[\"h=8 e=16 k=4\"]"},
        "einsum: x has h/mdl, y has h; reshard y to h/mdl (free slice) or gather x"}});
}

TEST_CASE("einsum: equations") {
  const auto equation = [](const char* text) {
    return [text](T t) { return einsum(text, t[0], t[1]); };
  };
  const std::vector<std::string> inputs = {kWhole, "f32[\"e=16 m=32\"]"};
  run({{"", inputs, equation("b e, e m -> m b"), "f32[\"m b\"]"},
       {"", inputs, equation("b e, e m -> b"),
        "einsum: m of y is neither contracted nor in the result; reduce_sum it first"},
       {"", inputs, equation("b e, e m -> b n"),
        "einsum: the result's axis n is in neither operand"},
       {"", inputs, equation("b e, m -> b m"),
        "einsum \"b e, m -> b m\": y has axes [e m], the equation says [m]"},
       {"", inputs, equation("b e, e m"), "einsum \"b e, e m\": expected \"a b, b c -> a c\""}});
}

TEST_CASE("einsum: layouts written in an equation are checked") {
  const auto equation = [](const char* text) {
    return [text](T t) { return einsum(text, t[0], t[1]); };
  };
  const std::vector<std::string> inputs = {"f32[\"b/data=8 e/mdl=16\"]", "f32[\"e/mdl=16 m=32\"]"};
  run({{"", inputs, equation("b/data e/mdl, e/mdl m -> b/data m + sum(mdl)"),
        "f32[\"b/data m\" + sum(mdl)]"},
       {"", inputs, equation("b/data e, e/mdl m -> b/data m + sum(mdl)"),
        "einsum \"b/data e, e/mdl m -> b/data m + sum(mdl)\": x is b/data e/mdl, the equation says "
        "b/data e; reshard it or correct the equation"},
       {"", inputs, equation("b/data e/mdl, e/mdl m -> b/data m"),
        "einsum \"b/data e/mdl, e/mdl m -> b/data m\": einsum is b/data m + sum(mdl), the equation "
        "says b/data m; reshard it or correct the equation"},
       {"", inputs, equation("b=8 e, e m -> b m"),
        "einsum \"b=8 e, e m -> b m\": an equation gives no sizes, got 'b=8'"}});
}

TEST_CASE("add and sub: the same partial in all operands or in none") {
  const Cases cases = {
      {{kWhole, kVector}, "f32[\"b e\"]"},
      {{kSplit, kSplitVector}, "f32[\"b e/mdl\"]"},
      {{kVector, kWhole}, "f32[\"b e\"]"},
      {{"f32[\"b=8\"]", kVector}, "f32[\"b e\"]"},
      {{kSplit, kScalar}, "f32[\"b e/mdl\"]"},
      {{"f32[\"b/data=8 e=16\"]", kSplitVector},
       "add: x has e, y has e/mdl; reshard x to e/mdl (free slice) or gather y"},
      {{"f32[\"b/data=8\"]", kSplitVector}, "f32[\"b/data e/mdl\"]"},
      {{"f32[\"b/mdl=8\"]", kSplitVector}, "add: result uses mdl for both b and e; place(y)"},
      {{kSum, kSum}, "f32[\"b e\" + sum(mdl)]"},
      {{kSum, kSumVector}, "f32[\"b e\" + sum(mdl)]"},
      {{kSum, kVector},
       "add: x is a partial sum over mdl, y is not; y would count once for each device along mdl; "
       "place(x) before adding"},
      {{kSplit, kSumVector},
       "add: y is a partial sum over mdl, x is not; x would count once for each device along mdl; "
       "place(y) before adding"},
      {{kSum, kScalar},
       "add: x is a partial sum over mdl, y is not; y would count once for each device along mdl; "
       "place(x) before adding"},
      {{kSum, kSumData}, "add: x partial over mdl, y over data; place both"},
      {{kMax, kWhole}, "add: x is a partial max over mdl; reshard it to replicated"},
      {{kWhole, "bool[\"b=8\"]"}, "add: y is bool, expected numbers; cast it"},
      {{kWhole, "bf16[\"b=8\"]"}, "add: x is f32, y is bf16; cast one"}};
  run(
      "add", [](T t) { return t[0] + t[1]; }, cases);
  Cases sub_cases;
  for (auto [inputs, outcome] : cases) {
    if (outcome.starts_with("add")) outcome = "sub" + outcome.substr(3);
    sub_cases.push_back({inputs, outcome});
  }
  run(
      "sub", [](T t) { return t[0] - t[1]; }, sub_cases);
}

TEST_CASE("A number added to a partial sum would count once per device") {
  run("x + 1", [](T t) { return t[0] + 1.0; },
      {{{kWhole}, "f32[\"b e\"]"},
       {{kSum},
        "add: x is a partial sum over mdl, 1 is not; 1 would count once for each device along mdl; "
        "place(x) before "
        "adding"}});
}

TEST_CASE("mul: at most one operand is partial over a mesh axis, the others are replicated") {
  run("mul", [](T t) { return t[0] * t[1]; },
      {{{kSplit, kSplitVector}, "f32[\"b e/mdl\"]"},
       {{kSum, kVector}, "f32[\"b e\" + sum(mdl)]"},
       {{kVector, kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{kSum, "f32[\"e=16\" + sum(data)]"}, "f32[\"b e\" + sum(data, mdl)]"},
       {{kSum, kScalar}, "f32[\"b e\" + sum(mdl)]"},
       {{kSum, kSumVector}, "mul: both operands are partial over mdl; place(y)"},
       {{kSum, kSplitVector}, "mul: x is partial over mdl, which splits e of y; place(x)"},
       {{"f32[\"b=8\"]", "f32[\"e/mdl=16\" + sum(data)]"}, "f32[\"b e/mdl\" + sum(data)]"},
       {{"f32[\"b/data=8\"]", "f32[\"e=16\" + sum(data)]"},
        "mul: y is partial over data, which splits b of x; place(y)"},
       {{kMax, kVector}, "mul: x is a partial max over mdl; reshard it to replicated"}});
}

TEST_CASE("div: a partial numerator, never a partial divisor") {
  run("div", [](T t) { return t[0] / t[1]; },
      {{{kSum, kVector}, "f32[\"b e\" + sum(mdl)]"},
       {{kWhole, kSumVector}, "div: the divisor y is partial over mdl; place(y)"},
       {{kSum, kSplitVector}, "div: x is partial over mdl, which splits e of y; place(x)"},
       {{kWhole, kMax}, "div: y is a partial max over mdl; reshard it to replicated"},
       {{"i32[\"b=8\"]", "i32[\"b=8\"]"}, "div: x is i32, expected a floating dtype; cast it"}});
}

TEST_CASE("Linear ops of one operand accept partial sums but not maxima") {
  const std::vector<std::pair<std::string, Application>> ops = {
      {"neg", [](T t) { return -t[0]; }},
      {"scale", [](T t) { return t[0] * 2.0; }},
      {"stop_gradient", [](T t) { return stop_gradient(t[0]); }},
      {"save_for_backward", [](T t) { return save_for_backward(t[0], "kept"); }},
      {"transpose", [](T t) { return transpose(transpose(t[0], "e b"), "b e"); }}};
  for (const auto& [name, apply] : ops) {
    run(name, apply,
        {{{kWhole}, "f32[\"b e\"]"},
         {{kSplit}, "f32[\"b e/mdl\"]"},
         {{kSum}, "f32[\"b e\" + sum(mdl)]"},
         {{kMax}, name + ": x is a partial max over mdl; reshard it to replicated"}});
  }
}

TEST_CASE("cast: accepts a partial only on request") {
  run("cast", [](T t) { return cast(t[0], DType::kBF16); },
      {{{kSplit}, "bf16[\"b e/mdl\"]"},
       {{kSum},
        "cast: x is partial over mdl and would be rounded before it is summed; place(x), or ask "
        "for CastPartial::kThrough"},
       {{kMax}, "cast: x is a partial max over mdl; reshard it to replicated"}});
  run("cast through", [](T t) { return cast(t[0], DType::kBF16, CastPartial::kThrough); },
      {{{kSum}, "bf16[\"b e\" + sum(mdl)]"}});
}

TEST_CASE("Nonlinear ops of one operand refuse partials") {
  const std::vector<std::pair<std::string, Tensor (*)(Operand)>> ops = {{"exp", exp},
                                                                        {"log", log},
                                                                        {"sqrt", sqrt},
                                                                        {"rsqrt", rsqrt},
                                                                        {"square", square},
                                                                        {"abs", abs},
                                                                        {"sign", sign},
                                                                        {"sin", sin},
                                                                        {"cos", cos},
                                                                        {"erf", erf},
                                                                        {"tanh", tanh},
                                                                        {"sigmoid", sigmoid},
                                                                        {"relu", relu},
                                                                        {"softplus", softplus},
                                                                        {"silu", silu},
                                                                        {"gelu", gelu},
                                                                        {"gelu_tanh", gelu_tanh}};
  for (const auto& [name, function] : ops) {
    run(name, [function = function](T t) { return function(t[0]); },
        {{{kWhole}, "f32[\"b e\"]"},
         {{kSplit}, "f32[\"b e/mdl\"]"},
         {{kSum}, name + " is not linear; x is partial over mdl; place(x)"},
         {{kMax}, name + ": x is a partial max over mdl; reshard it to replicated"}});
  }
}

TEST_CASE("Nonlinear ops of two operands refuse partials") {
  const std::vector<std::pair<std::string, Tensor (*)(Operand, Operand)>> ops = {
      {"pow", pow},     {"maximum", maximum}, {"minimum", minimum},
      {"equal", equal}, {"less", less},       {"less_equal", less_equal}};
  for (const auto& [name, function] : ops) {
    const std::string dtype = name.find('m') != std::string::npos || name == "pow" ? "f32" : "bool";
    run(name, [function = function](T t) { return function(t[0], t[1]); },
        {{{kSplit, kSplitVector}, dtype + "[\"b e/mdl\"]"},
         {{kWhole, kSumVector}, name + " is not linear; y is partial over mdl; place(y)"},
         {{kMax, kVector}, name + ": x is a partial max over mdl; reshard it to replicated"}});
  }
}

TEST_CASE("Gradients of activations are linear in the cotangent alone") {
  const std::vector<std::pair<std::string, Tensor (*)(Operand, Operand)>> ops = {
      {"tanh_grad", tanh_grad}, {"sigmoid_grad", sigmoid_grad}, {"relu_grad", relu_grad},
      {"silu_grad", silu_grad}, {"gelu_grad", gelu_grad},       {"gelu_tanh_grad", gelu_tanh_grad}};
  for (const auto& [name, function] : ops) {
    run(name, [function = function](T t) { return function(t[0], t[1]); },
        {{{kSplit, kSplit}, "f32[\"b e/mdl\"]"},
         {{kWhole, kSum}, "f32[\"b e\" + sum(mdl)]"},
         {{kSum, kWhole}, name + " is not linear; x is partial over mdl; place(x)"},
         {{"f32[\"b/mdl=8 e=16\"]", kSum},
          name + ": y is partial over mdl, which splits b of x; place(y)"}});
  }
}

TEST_CASE("Logical ops and predicates") {
  run("logical_and", [](T t) { return logical_and(t[0], t[1]); },
      {{{"bool[\"b=8\"]", "bool[\"e/mdl=16\"]"}, "bool[\"b e/mdl\"]"},
       {{"bool[\"b=8\"]", "f32[\"b=8\"]"}, "logical_and: y is f32, expected bool"}});
  run("is_finite", [](T t) { return is_finite(t[0]); },
      {{{kSplit}, "bool[\"b e/mdl\"]"},
       {{kSum}, "is_finite is not linear; x is partial over mdl; place(x)"}});
}

TEST_CASE("where: the condition is not partial; linear in both branches together") {
  run("where", [](T t) { return where(t[0], t[1], t[2]); },
      {{{"bool[\"b=8\"]", kWhole, kVector}, "f32[\"b e\"]"},
       {{"bool[\"b=8\"]", kSum, kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{"bool[\"b/mdl=8\"]", kSumVector, kSumVector},
        "where: y is partial over mdl, which splits the condition x; place(y)"},
       {{"bool[\"b=8\"]", kSum, kWhole},
        "where: y is a partial sum over mdl, z is not; z would count once for each device along "
        "mdl; place(y) before "
        "adding"},
       {{"bool[\"b=8\" + sum(mdl)]", kWhole, kWhole},
        "where: the condition x is partial over mdl; place(x)"},
       {{"f32[\"b=8\"]", kWhole, kWhole}, "where: x is f32, expected bool"},
       {{"bool[\"b=8\"]", kWhole, "bf16[\"e=16\"]"}, "where: y is f32, z is bf16; cast one"}});
  run("mask", [](T t) { return mask(t[0], t[1]); },
      {{{kSum, "bool[\"b=8\"]"}, "f32[\"b e\" + sum(mdl)]"},
       {{kSum, "bool[\"b/mdl=8\"]"},
        "mask: x is partial over mdl, which splits b of y; place(x)"}});
}

TEST_CASE("Reductions over split axes are partial") {
  run("reduce_sum", [](T t) { return reduce_sum(t[0], "e"); },
      {{{kWhole}, "f32[\"b\"]"},
       {{kSplit}, "f32[\"b\" + sum(mdl)]"},
       {{"f32[\"b/data=8 e/mdl=16\"]"}, "f32[\"b/data\" + sum(mdl)]"},
       {{kSum}, "f32[\"b\" + sum(mdl)]"},
       {{"f32[\"b=8 e/data=16\" + sum(mdl)]"}, "f32[\"b\" + sum(data, mdl)]"},
       {{kMax}, "reduce_sum: x is a partial max over mdl; reshard it to replicated"},
       {{"f32[\"b=8\"]"}, "reduce_sum: x has no axis 'e': it is f32[\"b\"]"}});
  run("reduce_max", [](T t) { return reduce_max(t[0], "e"); },
      {{{kWhole}, "f32[\"b\"]"},
       {{kSplit}, "f32[\"b\" + max(mdl)]"},
       {{kSum}, "reduce_max is not linear; x is partial over mdl; place(x)"},
       {{kMax}, "reduce_max: x is a partial max over mdl; reshard it to replicated"}});
  run("reduce_mean", [](T t) { return reduce_mean(t[0], "e"); },
      {{{kSplit}, "f32[\"b\" + sum(mdl)]"}});
}

TEST_CASE(
    "broadcast: a new axis may be split over mesh axes along which the operand is replicated") {
  run("broadcast",
      [](T t) {
        return broadcast(t[0], {{"n", 8, {"mdl"}}});
      },
      {{{kWhole}, "f32[\"n/mdl b e\"]"},
       {{kSplit}, "broadcast: result uses mdl for both e and n; reshard an operand"},
       {{kSum}, "broadcast: x is partial over mdl, which cannot split the new axis n; place(x)"},
       {{kSumData}, "f32[\"n/mdl b e\" + sum(data)]"},
       {{kMax}, "broadcast: x is a partial max over mdl; reshard it to replicated"},
       {{"f32[\"n=8\"]"}, "broadcast: x has an axis n already: it is f32[\"n\"]; rename one"}});
  run("broadcast in order",
      [](T t) {
        return broadcast(t[0], {{"n", 8}}, "b n e");
      },
      {{{kSplit}, "f32[\"b n e/mdl\"]"},
       {{kVector}, "broadcast: order has b, the result does not"},
       {{"f32[\"b=8 e=16 s=4\"]"}, "broadcast: order [b n e] must name each axis of [b e s n]"}});
}

TEST_CASE("gather: typed as the one-hot product") {
  run("gather", [](T t) { return gather(t[0], t[1], "v"); },
      {{{"f32[\"v=16 e=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e\"]"},
       {{"f32[\"v/mdl=16 e=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e\" + sum(mdl)]"},
       {{"f32[\"v=16 e/mdl=16\"]", "i32[\"b/data=8 s=4\"]"}, "f32[\"b/data s e/mdl\"]"},
       {{"f32[\"v=16 e=16\" + sum(mdl)]", "i32[\"b/data=8\"]"}, "f32[\"b/data e\" + sum(mdl)]"},
       {{"f32[\"v/data=16 e=16\"]", "i32[\"b/data=8 s=4\"]"},
        "gather: x v/data, y b/data; place(x)"},
       {{"f32[\"v=16 e/data=16\"]", "i32[\"b/data=8\"]"},
        "gather: result uses data for both b and e; place(x)"},
       {{"f32[\"v=16 e=16\" + sum(data)]", "i32[\"b/data=8\"]"},
        "gather: x is partial over data, which splits b of y; place(x)"},
       {{"f32[\"v=16 e=16\"]", "i32[\"b=8\" + sum(mdl)]"},
        "gather: the index tensor y is partial over mdl; place(y)"},
       {{"f32[\"v=16 e=16\"]", "f32[\"b=8\"]"}, "gather: y is f32, expected i32"},
       {{"f32[\"e=16 v=16\"]", "i32[\"b=8\"]"},
        "gather: v must come first in x, which is f32[\"e v\"]; transpose it"},
       {{"f32[\"v=16 e=16\"]", "i32[\"e=16\"]"}, "gather: x and y both have axis e; rename one"},
       {{"f32[\"u=16 e=16\"]", "i32[\"b=8\"]"}, "gather: x has no axis 'v': it is f32[\"u e\"]"}});
}

TEST_CASE("scatter_add: the transposed one-hot product") {
  run("scatter_add",
      [](T t) {
        return scatter_add(t[0], t[1], {"v", 16, {"mdl"}});
      },
      {{{"f32[\"b=8 e=16\"]", "i32[\"b=8\"]"}, "f32[\"v/mdl e\"]"},
       {{"f32[\"b/data=8 e=16\"]", "i32[\"b/data=8\"]"}, "f32[\"v/mdl e\" + sum(data)]"},
       {{"f32[\"b/mdl=8 e=16\"]", "i32[\"b/mdl=8\"]"}, "scatter_add: x v/mdl, y b/mdl; place(x)"},
       {{"f32[\"b=8 e/mdl=16\"]", "i32[\"b=8\"]"},
        "scatter_add: result uses mdl for both v and e; place(x)"},
       {{"f32[\"b=8 e=16\" + sum(data)]", "i32[\"b=8\"]"}, "f32[\"v/mdl e\" + sum(data)]"},
       {{"f32[\"b=8 e=16\" + sum(mdl)]", "i32[\"b=8\"]"},
        "scatter_add: result is partial over mdl, which also splits v; reshard an operand"},
       {{"f32[\"b/data=8 e=16\"]", "i32[\"b=8\"]"},
        "scatter_add: x has b/data, y has b; reshard y to b/data (free slice) or gather x"},
       {{"f32[\"e=16 b=8\"]", "i32[\"b=8\"]"},
        "scatter_add: x is f32[\"e b\"], expected to begin with the axes [b] of y"}});
}

TEST_CASE("pick: one element of an axis, by id") {
  run("pick", [](T t) { return pick(t[0], t[1], "v"); },
      {{{"f32[\"b/data=8 v=16\"]", "i32[\"b/data=8\"]"}, "f32[\"b/data\"]"},
       {{"f32[\"b/data=8 v/mdl=16\"]", "i32[\"b/data=8\"]"}, "f32[\"b/data\" + sum(mdl)]"},
       {{"f32[\"b=8 v=16\" + sum(mdl)]", "i32[\"b=8\"]"}, "f32[\"b\" + sum(mdl)]"},
       {{"f32[\"b=8 v/mdl=16\"]", "i32[\"b/mdl=8\"]"},
        "pick: x has b, y has b/mdl; reshard x to b/mdl (free slice) or gather y"},
       {{"f32[\"b=8 v=16\"]", "i32[\"s=8\"]"},
        "pick: x is f32[\"b v\"] and y is i32[\"s\"]; expected the same axes in the same order, "
        "without v"}});
}

TEST_CASE("Generators have the layout of their argument") {
  run("constant",
      [](T) {
        return constant(1.0, DType::kF32, {{"b", 8, {"data"}}, {"e", 4}});
      },
      {{{}, "f32[\"b/data e\"]"}});
  run("iota", [](T) { return iota({"s", 8, {"mdl"}}); }, {{{}, "i32[\"s/mdl\"]"}});
  run("causal_mask",
      [](T) {
        return causal_mask({"s", 8, {"mdl"}}, {"k", 8});
      },
      {{{}, "bool[\"s/mdl k\"]"}});
  run("one_hot",
      [](T t) {
        return one_hot(t[0], {"v", 16, {"mdl"}}, DType::kBF16);
      },
      {{{"i32[\"b/data=8\"]"}, "bf16[\"b/data v/mdl\"]"},
       {{"i32[\"b/mdl=8\"]"}, "one_hot: result uses mdl for both b and v; reshard an operand"},
       {{"i32[\"b=8\" + sum(mdl)]"}, "one_hot is not linear; x is partial over mdl; place(x)"},
       {{"f32[\"b=8\"]"}, "one_hot: x is f32, expected i32"}});
  run("constant split twice",
      [](T) {
        return constant(1.0, DType::kF32, {{"b", 8, {"mdl"}}, {"e", 8, {"mdl"}}});
      },
      {{{}, "constant: f32[\"b/mdl e/mdl\"] uses mdl for both b and e"}});
}

TEST_CASE("Layout ops keep splits and accept partial sums") {
  run("rename", [](T t) { return rename(t[0], "e", "k"); },
      {{{kSplit}, "f32[\"b k/mdl\"]"},
       {{kSum}, "f32[\"b k\" + sum(mdl)]"},
       {{"f32[\"k=4 e=16\"]"}, "rename: x has an axis k already: it is f32[\"k e\"]; rename one"}});
  run("transpose", [](T t) { return transpose(t[0], "e b"); },
      {{{kSplit}, "f32[\"e/mdl b\"]"},
       {{kVector}, "transpose: order [e b] must name each axis of x: [e]"}});
  run("split_axis",
      [](T t) {
        return split_axis(t[0], "e", {"h", 4}, {"d", 4});
      },
      {{{kSplit}, "f32[\"b h/mdl d\"]"},
       {{kSum}, "f32[\"b h d\" + sum(mdl)]"},
       {{"f32[\"e=32\"]"}, "split_axis: e=32 of x is not h=4 times d=4"}});
  run("merge_axes", [](T t) { return merge_axes(t[0], "h", "d", "e"); },
      {{{"f32[\"b=8 h/mdl=4 d=4\"]"}, "f32[\"b e/mdl\"]"},
       {{"f32[\"h=4 d/mdl=4\"]"}, "merge_axes: d of x is split over mdl; reshard it to unsplit d"},
       {{"f32[\"h=4 b=8 d=4\"]"},
        "merge_axes: h and d of x are not neighbours in this order: it is f32[\"h b d\"]; "
        "transpose it"}});
  run("slice", [](T t) { return slice(t[0], "b", 2, 6); },
      {{{kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{"f32[\"b/data=8\"]"}, "slice: b of x is split over data; reshard it to unsplit b"},
       {{"f32[\"b=4\"]"}, "slice: [2, 6) is not a part of b=4 of x"}});
  run("pad", [](T t) { return pad(t[0], "b", 2, 6); },
      {{{kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{"f32[\"b/data=8\"]"}, "pad: b of x is split over data; reshard it to unsplit b"}});
  run("concat", [](T t) { return concat(t, "b"); },
      {{{kSplit, kSplit}, "f32[\"b e/mdl\"]"},
       {{kSum, kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{kSum, kWhole},
        "concat: x is a partial sum over mdl, y is not; y would count once for each device along "
        "mdl; place(x) before "
        "adding"},
       {{kSplit, kWhole},
        "concat: x is f32[\"b=8 e/mdl=16\"], y is f32[\"b=8 e=16\"]; they may differ in the size "
        "of b only"}});
  run("shift_right", [](T t) { return shift_right(t[0], "b", 0.0); },
      {{{kSum}, "f32[\"b e\" + sum(mdl)]"},
       {{"f32[\"b/data=8\"]"}, "shift_right: b of x is split over data; reshard it to unsplit b"}});
  run("shift_right with a fill", [](T t) { return shift_right(t[0], "b", 1.0); },
      {{{kSum}, "shift_right is not linear; x is partial over mdl; place(x)"}});
}

TEST_CASE("A size that the split does not divide is refused with the nearest one that it does") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  REQUIRE(outcome(mesh, {"f32[\"heads=4\"]"}, [](T t) {
            return reshard(t[0], "heads/mdl/data");
          }) == "reshard: heads=4 cannot be split by mdl*data=8; the nearest size that can is 8");
}

TEST_CASE("Fetched values are never partial") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const Trial trial(mesh, {"f32[\"\" + sum(data)]"});
  REQUIRE(error_of([&] { output("loss", trial.inputs()[0]); }) ==
          "loss is fetched but partial over data; place(loss)");
}

TEST_CASE("Errors give the source line, the op and the layer path") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const Trial trial(mesh, {kSum});
  const PathScope model("lm");
  const PathScope layer("x_layers[3]");
  const PathScope ffn("ffn");
  REQUIRE(error_of([&] { silu(trial.inputs()[0]); }) ==
          "tests/core/ops/typing_test.cc:" + std::to_string(__LINE__ - 1) +
              ": silu is not linear; x is partial over mdl; place(x) [in lm.x_layers[3].ffn]");
}

}  // namespace
}  // namespace tessera
