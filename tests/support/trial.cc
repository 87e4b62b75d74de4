// SPDX-License-Identifier: Apache-2.0
#include "tests/support/trial.h"

#include <cctype>

#include "core/base/error.h"
#include "core/graph/typing.h"
#include "tests/support/catch.h"

namespace tessera {

Trial::Trial(const Mesh& mesh, const std::vector<std::string>& types)
    : mesh_(mesh), scope_(graph_, mesh_, rules_) {
  const std::string names = "xyzuvwabc";
  for (size_t i = 0; i < types.size(); ++i) {
    inputs_.push_back(input(std::string(1, names.at(i)), InputKind::kBatch, parse_type(types[i])));
  }
}

std::string outcome(const Mesh& mesh, const std::vector<std::string>& types,
                    const Application& apply) {
  const Trial trial(mesh, types);
  std::string result;
  const std::string error = error_of([&] { result = apply(trial.inputs()).type().text(); });
  if (!result.empty()) return result;
  const size_t line = error.find(".cc:");
  if (line == std::string::npos) return error;
  return error.substr(error.find(": ", line) + 2);
}

std::vector<Type> all_layouts(const Type& type, const Mesh& mesh, Partials partials) {
  std::vector<Type> layouts = {type};
  for (const MeshAxis& mesh_axis : mesh.axes()) {
    const std::vector<Type> without = layouts;
    for (const Type& base : without) {
      for (size_t i = 0; i < base.axes.size(); ++i) {
        for (size_t at = 0; at <= base.axes[i].split.size(); ++at) {
          Type split = base;
          std::vector<std::string>& order = split.axes[i].split;
          order.insert(order.begin() + static_cast<std::ptrdiff_t>(at), mesh_axis.name);
          if (!type_problem(split, mesh)) layouts.push_back(split);
        }
      }
      if (partials == Partials::kSums) {
        Type partial = base;
        partial.partial.kind = PartialKind::kSum;
        partial.partial.mesh_axes.push_back(mesh_axis.name);
        layouts.push_back(partial);
      }
    }
  }
  return layouts;
}

std::vector<Type> cotangent_layouts(const Type& type, const Mesh& mesh) {
  Type whole = type;
  whole.partial = {};
  std::vector<Type> layouts = {whole};
  for (const MeshAxis& mesh_axis : mesh.axes()) {
    if (split_over(type, mesh_axis.name) || type.partial.over(mesh_axis.name)) continue;
    const std::vector<Type> without = layouts;
    for (Type partial : without) {
      partial.partial.kind = PartialKind::kSum;
      partial.partial.mesh_axes.push_back(mesh_axis.name);
      layouts.push_back(partial);
    }
  }
  return layouts;
}

std::string without_numbers(const std::string& text) {
  std::string plain;
  for (const char character : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(character)) != 0;
    if (!digit) plain += character;
    if (digit && (plain.empty() || plain.back() != '#')) plain += '#';
  }
  return plain;
}

}  // namespace tessera
