// SPDX-License-Identifier: Apache-2.0
// Layouts that a search leaves out because a size cannot be divided, and sizes that would let them
// in.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/graph/mesh.h"

namespace tessera {

// How many layouts or candidates are left out for a reason.
struct LeftOut {
  int64_t count = 0;
  std::string reason;
};

class Exclusions {
 public:
  // A mesh of a layout, which may be left out.
  void consider(const Mesh& mesh);
  // A layout that divides this size among `parts` devices along these mesh axes ("mdl").
  // `what`: an axis of a tensor or a setting; `where`: of which tensor, or empty.
  void add(const std::string& what, const std::string& where, int64_t size, const std::string& by,
           int64_t parts);
  // A layout that is left out for another reason.
  void add(const std::string& reason) { ++others_[reason]; }

  // Layouts by reason, large groups first. Where it is a size, the reason names a size that lets
  // some of them in.
  std::vector<LeftOut> groups() const;

 private:
  struct Size {
    std::string where;
    std::set<int64_t> parts;
    int64_t layouts = 0;
  };
  struct Key {
    std::string what, by;
    int64_t size = 0;
    auto operator<=>(const Key&) const = default;
  };
  std::map<std::string, std::set<int64_t>> tried_;  // Sizes above 1 of mesh axes.
  std::map<Key, Size> sizes_;
  std::map<std::string, int64_t> others_;
};

}  // namespace tessera
