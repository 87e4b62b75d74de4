// SPDX-License-Identifier: Apache-2.0
// Features that have never run on a GPU, each with a switch that turns it off: an item that fails
// runs again with one of them off, so that the report says which is at fault. A new feature with a
// switch is a row in features.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cuda {

struct Feature {
  std::string name;      // "CUDA graph"
  std::string variable;  // Of the environment.
  std::string off;       // Its value without the feature; of a list of words, one more word.
  // An item may use the feature if its name contains one of these words.
  std::vector<std::string> items;
};

const std::vector<Feature>& features();
// The value of the variable with the feature off, where it had the value `before`.
std::string value_without(const Feature& feature, const std::string& before);
const Feature& find_feature(std::string_view name);
std::vector<Feature> features_of(std::string_view item);

}  // namespace tessera::cuda
