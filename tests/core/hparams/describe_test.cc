// SPDX-License-Identifier: Apache-2.0
// describe() and diff(), and the origin of inherited values.
#include "core/hparams/path.h"
#include "core/hparams/text.h"
#include "core/hparams/tree.h"
#include "tests/core/hparams/sample.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using sample::FeedForward;
using sample::Leaky;
using sample::Model;
using sample::Unary;

struct Root {
  static constexpr std::string_view kName = "Root";
  Template<Unary> model;
  FIELDS(model)
};

TEST_CASE("describe prints one line per value") {
  Root root;
  root.model = FeedForward::HParams{.hidden_dims = 8};
  const int line = __LINE__ - 1;
  set_path(root, "model.dtypes.compute", "bf16");
  Tree tree = to_tree(root);
  const std::string where = fmt::format("tests/core/hparams/describe_test.cc:{}", line);
  const std::string policy =
      "model.dtypes = {param = \"f32\", compute = \"bf16\", reduce = \"f32\", output = \"f32\"}";
  const auto padded = [](std::string text) { return text.append(72 - text.size(), ' '); };
  REQUIRE(describe(tree) == padded("model = FeedForward") + "  # " + where + "\n" +
                                padded("model.hidden_dims = 8") + "  # " + where + "\n" +
                                padded("model.use_bias = true") + "  # default\n" +
                                padded("model.activation_tpl = ReLU") + "  # default\n" + policy +
                                "  # --set model.dtypes.compute=bf16\n" +
                                padded("model.params_init = unset") + "  # default\n");
}

TEST_CASE("Plain members can be marked as set on the command line") {
  Root root;
  root.model = Leaky::HParams{};
  set_path(root, "model.slope", "0.5");
  Tree tree = to_tree(root);
  note_command_line(tree, "model.slope=0.5");
  REQUIRE_THAT(describe(tree), Catch::Contains("# --set model.slope=0.5"));
}

TEST_CASE("diff lists differences only") {
  Root before;
  before.model = FeedForward::HParams{.hidden_dims = 8};
  Root after = before;
  REQUIRE(diff(to_tree(before), to_tree(after)).empty());
  set_path(after, "model.hidden_dims", "16");
  set_path(after, "model.activation_tpl", "Leaky");
  REQUIRE(diff(to_tree(before), to_tree(after)) ==
          std::vector<std::string>{"model.hidden_dims: 8 -> 16",
                                   "model.activation_tpl: ReLU -> Leaky",
                                   "model.activation_tpl.slope: absent -> 0.01",
                                   "model.activation_tpl.dtypes: absent -> unset"});
}

TEST_CASE("A value inherited through several levels cites the struct that set it") {
  Model::HParams p{.vocab_size = 3};
  p.ffn_tpl.as<FeedForward::HParams>().activation_tpl = Leaky::HParams{};
  p.dtypes = DTypePolicy{};
  Root root;
  root.model = p;
  const Tree tree = resolved(to_tree(root));
  const Tree& inherited = at_path(tree, "model.ffn_tpl.activation_tpl.dtypes");
  REQUIRE(inherited.provenance.text() == "inherited from model");
  REQUIRE(missing_fields(tree) == std::vector<std::string>{"model.ffn_tpl.hidden_dims"});
}

TEST_CASE("A required field may be inherited") {
  Tree tree = Tree::table("Outer");
  Tree set = Tree::of(int64_t{4});
  set.role = Tree::Role::kField;
  set.type = &typeid(int64_t);
  tree.add("width", set);
  Tree required;
  required.role = Tree::Role::kRequired;
  required.type = &typeid(int64_t);
  tree.add("inner", Tree::table("Inner")).add("width", required);
  REQUIRE(missing_fields(tree) == std::vector<std::string>{"inner.width"});
  REQUIRE(missing_fields(resolved(tree)).empty());
  // A field with the same name and another type is not inherited.
  tree.find("inner")->find("width")->type = &typeid(double);
  REQUIRE(missing_fields(resolved(tree)) == std::vector<std::string>{"inner.width"});
}

}  // namespace
}  // namespace tessera
