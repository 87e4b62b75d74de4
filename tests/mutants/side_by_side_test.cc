// SPDX-License-Identifier: Apache-2.0
// Mutants of one block, a feed-forward layer with FSDP and tensor parallelism, as judged by
// spmd_types (judge_by_spmd_types.py writes tests/golden/spmd_types.txt), by the type rules of
// Tessera, and after lowering.
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "core/compile/autodiff/autodiff.h"
#include "core/graph/op.h"
#include "core/graph/trace.h"
#include "core/graph/verify.h"
#include "core/io/file.h"
#include "core/ops/einsum.h"
#include "core/ops/elementwise.h"
#include "core/ops/layout.h"
#include "core/ops/reduce.h"
#include "core/ops/reshard.h"
#include "tests/mutants/campaign.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/source_tree.h"

namespace tessera {
namespace {

// A mutant of the block and, if there is one, the corresponding mutant of the feed-forward layer
// in the first lowered recipe.
struct BlockMutant {
  const char* name;
  const char *kind, *op, *how;
};

const std::vector<BlockMutant> kMutants = {
    {"none", "", "", ""},
    {"delete gather", "delete gather", "all_gather", "copies of its operand"},
    {"double gather", "double gather", "all_gather", "twice"},
    {"gather over mdl", "swap mesh axes", "all_gather", "replica and data"},
    {"gather of another axis", "retype gather", "all_gather", "axis mlp"},
    {"delete reduction", "delete reduction", "all_reduce", "its operand"},
    {"double reduction", "double reduction", "all_reduce", "twice"},
    {"reduction over data", "swap mesh axes", "all_reduce", "replica and data"},
    {"reduction before the product", "move reduction", "all_reduce", "before operand 0 of einsum"},
    {"reduction after the square", "", "", ""},
    {"reduction of the residual", "move reduction", "all_reduce", "to operand 0 of add"},
    {"scatter instead of the sum", "", "", ""},
    {"delete reduction of the loss", "", "", ""},
    {"double reduction of the loss", "", "", ""},
    {"loss over mdl", "", "", ""},
    {"enter without a conversion", "", "", ""},
    {"slice at another offset", "", "", ""},
    {"scale by 1/2", "", "", ""},
};

Tensor given(std::string_view name, std::string_view layout) {
  Type type = parse_layout(layout);
  type.dtype = DType::kF32;
  return input(std::string(name), InputKind::kParameter, type);
}

// The ops and types, without the source lines.
std::string computation_text(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    text += node.op->name;
    for (const ValueId input : node.inputs) text += fmt::format(" {}", input);
    for (const ValueId value : node.outputs) text += " " + graph.type(value).text_sized();
    text += " " + node.attributes.text() + "\n";
  }
  return text;
}

class Block {
 public:
  explicit Block(std::string_view mutant) : mutant_(mutant) {}

  // Traces the block and its gradients, as text; Error if a rule refuses it.
  std::string trace() const {
    Graph graph;
    const Mesh mesh({{"data", 2}, {"mdl", 2}});
    const AxisRules rules;
    const TraceScope scope(graph, mesh, rules);
    const Tensor x = given("x", "batch/data=4 embed=8");
    const Tensor up = given("up", "embed/data=8 mlp/mdl=16");
    const Tensor down = given("down", "mlp/mdl=16 embed/data=8");
    const Tensor value = loss(x, up, down);
    output("loss", value);
    int64_t number = 0;
    for (const Tensor& each : gradients(value, {x, up, down}))
      output(fmt::format("gradient {}", number++), each);
    verify(graph, mesh);
    return computation_text(graph);
  }

 private:
  bool is(std::string_view name) const { return mutant_ == name; }

  Tensor gathered(const Tensor& shard) const {
    if (is("delete gather")) return shard;
    if (is("gather over mdl")) return reshard(shard, "embed/data mlp");
    const Tensor whole = reshard(shard, "embed mlp/mdl");
    if (is("double gather")) return reshard(whole, "embed mlp/mdl");
    if (!is("slice at another offset")) return whole;
    return concat({slice(whole, "embed", 4, 8), slice(whole, "embed", 0, 4)}, "embed");
  }

  Tensor summed(const Tensor& y) const {
    if (is("delete reduction") || is("reduction after the square") ||
        is("reduction before the product") || is("reduction of the residual"))
      return y;
    if (is("reduction over data")) return reshard(y, "batch embed + sum(mdl)");
    if (is("scatter instead of the sum")) return reshard(y, "batch/data embed/mdl");
    const Tensor sum = reshard(y, "batch/data embed");
    return is("double reduction") ? reshard(sum, "batch/data embed") : sum;
  }

  Tensor loss(const Tensor& x, const Tensor& up, const Tensor& down) const {
    Tensor hidden = relu(einsum("batch embed, embed mlp -> batch mlp", x, gathered(up)));
    if (is("reduction before the product")) hidden = reshard(hidden, "batch/data mlp");
    const Tensor whole = reshard(down, "mlp/mdl embed");
    Tensor y = summed(einsum("batch mlp, mlp embed -> batch embed", hidden, whole));
    if (is("scale by 1/2")) y = y * 0.5;
    const Tensor residual = is("reduction of the residual") ? reduced(x) : x;
    Tensor squares = square(residual + y);
    if (is("reduction after the square")) squares = reduced(squares);
    const Tensor sum = reduce_sum(squares, "batch embed");
    if (is("delete reduction of the loss")) return sum;
    if (is("loss over mdl")) return reshard(sum, " + sum(mdl)");
    return is("double reduction of the loss") ? reduced(reduced(sum)) : reduced(sum);
  }

  std::string_view mutant_;
};

std::string verdict_of_rules(std::string_view mutant) {
  // A weight in its own layout needs no conversion, and a reshard names the layout that it makes.
  if (mutant == "enter without a conversion" || mutant == "gather of another axis")
    return "not expressible";
  const std::string whole = Block("none").trace();
  try {
    const bool is_same = mutant != "none" && Block(mutant).trace() == whole;
    return is_same ? "the same program" : "accepted";
  } catch (const Error&) {
    return "refused";
  }
}

std::string verdict_after_lowering(const std::vector<Mutant>& all, Judge& judge,
                                   const BlockMutant& like) {
  const auto found = std::ranges::find_if(all, [&](const Mutant& each) {
    return each.kind == like.kind && each.how == like.how && each.op == like.op &&
           each.phase == Phase::kForward && each.layer.find(".ffn") != std::string::npos;
  });
  return found == all.end() ? "-" : std::string(outcome_name(judge.on(*found).outcome));
}

// "global, local" of spmd_types by mutant.
std::map<std::string, std::string> verdicts_of_spmd_types() {
  std::istringstream lines(read_file(source_root() / "tests/golden/spmd_types.txt"));
  std::map<std::string, std::string> verdicts;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with('#')) verdicts[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return verdicts;
}

TEST_CASE("spmd_types and Tessera judge the mutants of one block") {
  const LoweredStep step(parse_composition(mutant_recipes().front()));
  const std::vector<Mutant> all = all_mutants(step);
  Judge judge(step);
  const auto spmd_types = verdicts_of_spmd_types();
  std::string table = fmt::format("{:30}{:27}{:18}{}\n", "mutant", "spmd_types: global, local",
                                  "type rules", "lowered");
  for (const BlockMutant& each : kMutants) {
    REQUIRE(spmd_types.contains(each.name));
    table += fmt::format("{:30}{:27}{:18}{}\n", each.name, spmd_types.at(each.name),
                         verdict_of_rules(each.name), verdict_after_lowering(all, judge, each));
  }
  fmt::print("{}", table);
  REQUIRE(golden_difference("mutants_side_by_side.txt", table) == "");
}

}  // namespace
}  // namespace tessera
