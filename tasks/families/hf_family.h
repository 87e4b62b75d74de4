// SPDX-License-Identifier: Apache-2.0
// A family of Hugging Face models: the members of its config.json and the names of its tensors.
// A file of this folder, or of a plugin, registers a family, or several that share parts; interop
// reads and writes models of every registered family.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tasks/families/config_members.h"
#include "tasks/families/layered_lm.h"

namespace tessera {

// A tensor of their files, or a part of it, and the weight of ours with the same values. `theirs`
// has {} for the layer's number, and a second {} if each expert has the tensor; then our weight has
// an axis experts. `axes` names the dimensions, outermost first, by our axes: "heads head_dim,
// embed" is a matrix. `ours` is the path of the weight below the block of a layer, or below the
// TransformerLm: the first of the alternatives a|b that the model has. With {} and the prefix
// "encoder.", it is below the block of an encoder's layer; "shared." begins weights of a shared_id.
//
// Rows in succession with the same `theirs` are parts of one tensor, concatenated along what
// follows "+" in a dimension: "+heads head_dim, embed" with "+kv_heads head_dim, embed" are the
// heads of queries before those of keys; "mlp +, embed" twice are alternating rows of two matrices.
//
// A row of "….weight" without alternatives stands for "….bias" as well, whose one dimension is the
// first of the weight's, unless another row names that.
//
// A row whose weight the configuration does not have does not exist, nor does one whose weight an
// earlier row holds (a tied head). If only an experiment lacks the weight, a bias is 0 and a
// scale 1.
struct WeightRow {
  std::string theirs;
  std::string_view axes;
  std::string ours;
  std::string_view with = "";  // The row exists only if their model has this weight, too.
};

struct HfFamily {
  std::string_view model_type;    // In config.json: "llama".
  std::string_view architecture;  // The class of transformers: "LlamaForCausalLM".
  // States each member of config.json with the field of ours. In reading, `model` has no layers
  // until the number of layers is read.
  void (*members)(ConfigMembers& config, LayeredLm& model);
  std::vector<WeightRow> weights;
  // Tensors that a file may have and the model does not need; null: none.
  bool (*is_ignored)(std::string_view name, const LayeredLm& model) = nullptr;
  int preference = 0;  // A model that fits several families is exported as the most preferred.
};

// A global of this type registers a family. Two of one model_type are an error when it is used.
struct FamilyRegistrar {
  explicit FamilyRegistrar(HfFamily family);
};

// All families, the most preferred first, then by model_type.
std::vector<const HfFamily*> hf_families();
// "gemma, gpt2, …".
std::string hf_family_names();
// Error with the nearest name; `where` begins it: "config.json: model_type".
const HfFamily& hf_family(std::string_view model_type, const std::string& where);

// A config.json.
struct HfConfig {
  const HfFamily* family = nullptr;
  LayeredLm model;
  std::vector<std::string> unread;  // Members that might matter, but are not known.
};
// Error for missing members, wrong types, values out of range, and features that our models lack;
// `where` is the file. `has_head` is asked where config.json does not tell whether a head is tied.
HfConfig read_hf_config(std::string_view text, const std::string& where,
                        const HasHead& has_head = {});

// A model as one of a family.
struct WrittenConfig {
  std::vector<std::string> lines;    // Members of config.json.
  std::vector<std::string> reasons;  // Why it is not of this family; empty: it is.
  bool has_other_parts = false;      // A reason is a layer of another class.
  LayeredLm model;                   // As those members read.
};
WrittenConfig write_hf_config(const HfFamily& family, LayeredLm model);

}  // namespace tessera
