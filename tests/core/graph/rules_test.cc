// SPDX-License-Identifier: Apache-2.0
// Axis rules: their text, their order, their roles.
#include "core/graph/rules.h"

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

std::string layout(const std::string& rules, const std::string& axes,
                   const std::string& role = "") {
  const Mesh mesh({{"replica", 2}, {"data", 2}, {"mdl", 2}});
  return apply_rules(parse_rules(rules), mesh, parse_layout(axes), role).layout();
}

TEST_CASE("Rules print as they are parsed") {
  const std::string text =
      "embed -> data, batch -> (replica, data), head_dim -> (), residual: seq -> mdl";
  const std::vector<AxisRule> rules = parse_rules(text);
  REQUIRE(rules.size() == 4);
  REQUIRE(rules[1] == AxisRule{"batch", {"replica", "data"}, ""});
  REQUIRE(rules[2].mesh.empty());
  REQUIRE(rules[3] == AxisRule{"seq", {"mdl"}, "residual"});
  REQUIRE(rules_text(rules) == text);
  REQUIRE(parse_rules("").empty());
  REQUIRE(parse_rules(" a->b ,c->( d ) ") == parse_rules("a -> b, c -> d"));
}

TEST_CASE("Errors in rules give the position") {
  REQUIRE(error_of([] { parse_rules("embed = data"); }) ==
          "rules \"embed = data\": expected '->' at character 7, got '= data'");
  REQUIRE(error_of([] { parse_rules("embed -> "); }) ==
          "rules \"embed -> \": expected a mesh axis or '(' at character 10, got the end");
  REQUIRE(error_of([] { parse_rules("a -> (b c)"); }) ==
          "rules \"a -> (b c)\": expected ',' at character 9, got 'c)'");
  REQUIRE(error_of([] { parse_rules("a -> b c -> d"); }) ==
          "rules \"a -> b c -> d\": expected ',' at character 8, got 'c -> d'");
  REQUIRE(error_of([] { layout("embed -> dta", "embed"); }) ==
          "the mesh (replica=2 data=2 mdl=2) has no axis 'dta'; did you mean 'data'?");
}

TEST_CASE("A mesh axis goes to the first axis that claims it") {
  REQUIRE(layout("mlp -> mdl, heads -> mdl", "heads mlp") == "heads mlp/mdl");
  REQUIRE(layout("heads -> mdl, mlp -> mdl", "heads mlp") == "heads/mdl mlp");
  REQUIRE(layout("heads -> mdl, mlp -> mdl", "batch mlp") == "batch mlp/mdl");
  REQUIRE(layout("batch -> (replica, data), embed -> data", "batch embed") ==
          "batch/replica/data embed");
  REQUIRE(layout("embed -> data, batch -> (replica, data)", "batch embed") ==
          "batch/replica embed/data");
}

TEST_CASE("The first rule of an axis applies, and rules of a role come first") {
  REQUIRE(layout("seq -> data, seq -> mdl", "seq") == "seq/data");
  REQUIRE(layout("heads -> mdl, residual: seq -> mdl", "seq heads", "residual") == "seq/mdl heads");
  REQUIRE(layout("heads -> mdl, residual: seq -> mdl", "seq heads") == "seq heads/mdl");
  REQUIRE(layout("mlp -> mdl, inner: mlp -> ()", "mlp", "inner") == "mlp");
}

TEST_CASE("A layer's rules replace those of the same axis in the same role") {
  const auto overlaid = [](const std::string& own, const std::string& general) {
    return rules_text(overlay_rules(parse_rules(own), parse_rules(general)));
  };
  const std::string general = "residual: seq -> mdl, batch -> data, seq -> ()";
  REQUIRE(overlaid("", general) == general);
  REQUIRE(overlaid("mlp -> mdl", general) == "mlp -> mdl, " + general);
  REQUIRE(overlaid("seq -> data", general) == "seq -> data, batch -> data");
  REQUIRE(overlaid("residual: seq -> ()", general) ==
          "residual: seq -> (), batch -> data, seq -> ()");
}

TEST_CASE("Rules replace splits and remove partials") {
  REQUIRE(layout("embed -> data", "batch/mdl embed + sum(replica)") == "batch embed/data");
}

}  // namespace
}  // namespace tessera
