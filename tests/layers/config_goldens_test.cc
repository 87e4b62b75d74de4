// SPDX-License-Identifier: Apache-2.0
// The configuration of known models, field by field, and their weights: a change of any default
// shows as a diff of tests/golden/models/.
#include <memory>

#include "core/hparams/tree.h"
#include "layers/models/base_model.h"
#include "tests/support/catch.h"
#include "tests/support/golden_text.h"
#include "tests/support/layer_trial.h"
#include "tests/support/reference_models.h"

namespace tessera {
namespace {

// "path = value" for every field that holds one; for a template, its class.
void append_fields(const Tree& tree, const std::string& path, std::string& text) {
  if (!tree.is_table()) {
    if (tree.is_set()) text += fmt::format("{} = {}\n", path, tree.value_text());
    return;
  }
  if (tree.is_template) text += fmt::format("{} = {}\n", path, tree.class_name);
  for (size_t i = 0; i < tree.keys.size(); ++i)
    append_fields(tree.items[i], join_path(path, tree.keys[i]), text);
}

struct Described {
  std::string text;
  int64_t elements = 0;
};

Described described(const LanguageModel::HParams& p) {
  const Template<BaseModel> model_tpl = p;
  Described result;
  append_fields(resolved(model_tpl.to_tree()), "model", result.text);
  const std::unique_ptr<BaseModel> model = model_tpl.instantiate();
  result.elements = model->parameters().elements();
  result.text += "\n";
  for (const std::string& line : weight_list(model->parameters())) result.text += line + "\n";
  result.text += fmt::format("\n{} weights\n", result.elements);
  return result;
}

TEST_CASE("known models have the published number of weights") {
  REQUIRE(described(gpt2_124m()).elements == 124439808);
  REQUIRE(described(llama2_7b()).elements == 6738415616);
  REQUIRE(described(seqax_84m()).elements == 100672000);  // 83.9M, and a second embedding table.
  REQUIRE(described(c4_spmd_1b()).elements == Approx(1.10e9).epsilon(5e-3));
}

TEST_CASE("the configurations of known models have not changed") {
  REQUIRE(golden_difference("models/gpt2_124m.txt", described(gpt2_124m()).text) == "");
  REQUIRE(golden_difference("models/llama2_7b.txt", described(llama2_7b()).text) == "");
  REQUIRE(golden_difference("models/seqax_84m.txt", described(seqax_84m()).text) == "");
  REQUIRE(golden_difference("models/c4_spmd_1b.txt", described(c4_spmd_1b()).text) == "");
}

}  // namespace
}  // namespace tessera
