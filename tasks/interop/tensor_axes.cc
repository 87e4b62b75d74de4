// SPDX-License-Identifier: Apache-2.0
#include "tasks/interop/tensor_axes.h"

#include <algorithm>
#include <ranges>
#include <string_view>

namespace tessera {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (const auto part : std::views::split(text, separator))
    if (!part.empty()) parts.emplace_back(part.begin(), part.end());
  return parts;
}

struct SizedAxis {
  std::string name;
  int64_t size = 1;
};

// "heads +head_dim": axes that all rows have, and those along which rows are concatenated.
struct Dimension {
  std::vector<SizedAxis> common, joined;
  bool joins = false;
};

int64_t product_of(const std::vector<SizedAxis>& axes) {
  int64_t product = 1;
  for (const SizedAxis& axis : axes) product *= axis.size;
  return product;
}

std::vector<Dimension> dimensions_of(const WeightRow& row, const Type& type) {
  std::vector<Dimension> dimensions;
  for (const std::string& text : split(row.axes, ',')) {
    Dimension dimension;
    for (std::string name : split(text, ' ')) {
      if (name[0] == '+') {
        dimension.joins = true;
        name.erase(0, 1);
      }
      if (name.empty()) continue;
      auto& axes = dimension.joins ? dimension.joined : dimension.common;
      axes.push_back({name, type.axis(name).size});
    }
    dimensions.push_back(std::move(dimension));
  }
  return dimensions;
}

}  // namespace

TensorAxes::TensorAxes(std::span<const WeightRow> rows, const std::vector<const Type*>& types) {
  std::vector<std::vector<Dimension>> dimensions;
  for (size_t i = 0; i < rows.size(); ++i) dimensions.push_back(dimensions_of(rows[i], *types[i]));
  parts_.resize(rows.size());
  // From the innermost dimension outwards.
  for (size_t d = dimensions[0].size(); d-- > 0;) {
    int64_t joined = 0;  // Indices along the concatenation.
    for (size_t i = 0; i < rows.size(); ++i) {
      Dimension& dimension = dimensions[i][d];
      if (dimension.joins) parts_[i].offset += joined * elements_;
      joined = (dimension.joins ? joined : 0) + product_of(dimension.joined);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      int64_t stride = elements_;
      const auto add = [&](const std::vector<SizedAxis>& axes) {
        for (const SizedAxis& axis : axes | std::views::reverse) {
          parts_[i].steps.push_back({axis.name, axis.size, stride});
          stride *= axis.size;
        }
      };
      add(dimensions[i][d].joined);
      stride = elements_ * joined;
      add(dimensions[i][d].common);
    }
    const int64_t size = joined * product_of(dimensions[0][d].common);
    shape_.insert(shape_.begin(), size);
    elements_ *= size;
  }
  for (Part& part : parts_) std::ranges::reverse(part.steps);
}

}  // namespace tessera
