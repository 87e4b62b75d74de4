// SPDX-License-Identifier: Apache-2.0
// The moves between layouts of one array that a plan is made of (core/passes/spmd/reshard_plan.h),
// as a graph to search: a layout's neighbours, and what each costs. Not the search itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/graph/mesh.h"
#include "core/graph/type.h"
#include "core/passes/spmd/reshard_plan.h"

namespace tessera {

// A layout: per axis of the array the mesh axes that split it, outermost first, and last those of
// the partial, in mesh order. A mesh axis is the character of its position in the mesh.
using LayoutKey = std::vector<std::string>;

struct Move {
  StepKind kind = StepKind::kSlice;
  std::string mesh_axes;
  size_t axis = 0, to_axis = 0;
  LayoutKey result;
  LinkUse use;
};

class ReshardMoves {
 public:
  ReshardMoves(const Type& from, const Type& to, const Mesh& mesh);

  const LayoutKey& from() const { return from_; }
  const LayoutKey& to() const { return to_; }
  // All moves from `layout`, in a fixed order.
  void each(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  ReshardStep step(const Move& move) const;

 private:
  LayoutKey key(const Type& type) const;
  std::vector<std::string> names(const std::string& mesh_axes) const;
  int64_t devices(const std::string& mesh_axes) const;
  int64_t slow_devices(const std::string& mesh_axes) const;  // Of them, the slices.
  int64_t local_bytes(const LayoutKey& layout) const;
  bool divides(const LayoutKey& layout, size_t axis) const;
  LinkUse shared(int64_t whole, const std::string& mesh_axes) const;

  void slices(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void masks(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void pads(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void reductions(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void gathers(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void exchanges(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void permutes(const LayoutKey& layout, const std::function<void(Move)>& visit) const;
  void permute_from(const LayoutKey& layout, size_t part, LayoutKey& built, std::string unused,
                    const std::function<void(Move)>& visit) const;

  Mesh mesh_;
  Type type_;                 // Of the array.
  std::string mesh_axes_;     // Those that `from` or `to` uses, of more than one device.
  std::vector<size_t> axes_;  // Those that `from` or `to` splits.
  LayoutKey from_, to_;
  PartialKind partial_ = PartialKind::kNone;
};

}  // namespace tessera
