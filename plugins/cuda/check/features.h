// SPDX-License-Identifier: Apache-2.0
// Features that a GPU or a library may lack or do wrong, each with a switch. An item that fails
// runs again with one of them off, so that the report says which is at fault. Items of stage 2 that
// may use a library run by our own kernels and by the library. A new feature with a switch is a row
// in features.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/check/items.h"

namespace tessera::cuda {

struct Feature {
  std::string name;      // "CUDA graph"
  std::string variable;  // Of the environment.
  std::string off;       // Its value without the feature; of a list of words, one more word.
  // An item may use the feature if its name contains one of these words.
  std::vector<std::string> items;
  std::string on = {};       // Its value with a library,
  std::string library = {};  // as the item "versions" names it.
};

const std::vector<Feature>& features();
// The value of the variable with the feature off, where it had the value `before`.
std::string value_without(const Feature& feature, const std::string& before);
const Feature& find_feature(std::string_view name);
std::vector<Feature> features_of(std::string_view item);
// Copies of an item by a library: "op attention, with attention by cuDNN".
std::vector<Item> with_features(const Item& item);

}  // namespace tessera::cuda
