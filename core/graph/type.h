// SPDX-License-Identifier: Apache-2.0
// The type of a tensor carries its layout: dtype, named axes with global sizes and the mesh axes
// each is split over, and the mesh axes over which the value is still partial (a pending sum or
// maximum). Written bf16["batch/data seq embed/mdl" + sum(replica)]. Every type denotes one global
// array; layouts decide only where its parts lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/mesh.h"

namespace tessera {

// The largest tensor, 16 times a trillion-parameter model's largest weight. With it, sizes in bytes
// and sums of them over a graph fit in 64 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 44;

struct Axis {
  std::string name;
  int64_t size = 0;                // Global.
  std::vector<std::string> split;  // Mesh axes, outermost first.
  std::string text() const;        // "batch/replica/data"
  bool operator==(const Axis&) const = default;
};

enum class PartialKind { kNone, kSum, kMax };

// The mesh axes over which a value is partial, in mesh order. kNone iff the list is empty.
struct Partial {
  PartialKind kind = PartialKind::kNone;
  std::vector<std::string> mesh_axes;
  explicit operator bool() const { return kind != PartialKind::kNone; }
  bool over(std::string_view mesh_axis) const;
  bool operator==(const Partial&) const = default;
};

struct Type {
  DType dtype = DType::kF32;
  std::vector<Axis> axes;
  Partial partial;
  bool operator==(const Type&) const = default;

  int64_t rank() const { return static_cast<int64_t>(axes.size()); }
  int64_t elements() const;                   // Global.
  int64_t bytes() const;                      // Global.
  int64_t find(std::string_view axis) const;  // Position, or -1.
  bool has(std::string_view axis) const { return find(axis) >= 0; }
  const Axis& axis(std::string_view name) const;  // Error naming the axes there are.
  std::vector<std::string> names() const;

  std::string text() const;        // bf16["batch/data seq embed/mdl" + sum(mdl)]
  std::string text_sized() const;  // bf16["batch/data=32 seq=128"], for dumps.
  std::string layout() const;      // batch/data seq embed/mdl + sum(mdl)
};

// "batch/data seq embed/mdl" -> axes with size 0, to be filled from context by name.
// Error on an empty name, a repeated axis or a mesh axis used twice.
std::vector<Axis> parse_axes(std::string_view text);

// The same with sizes ("batch/data=32") and a pending sum or maximum ("… + sum(mdl)") allowed: the
// axes and partial of a type of any dtype.
Type parse_layout(std::string_view text);

// Reads what text_sized() writes: bf16["batch/data=32 seq=128" + sum(mdl)].
Type parse_type(std::string_view text);

// "embed mlp" -> {"embed", "mlp"}; no splits allowed.
std::vector<std::string> parse_names(std::string_view text);

// One axis with its size, for building types by hand: f32({{"batch", 4}, {"seq", 8, {"data"}}}).
Type make_type(DType dtype, std::vector<Axis> axes);

// What is wrong with a type on a mesh, or nullopt: repeated axis, unknown mesh axis, one mesh axis
// used twice (or both split and partial), a size the split does not divide ("heads=4 cannot be
// split by mdl*data=8; …nearest legal size"), more elements than kMaxElements.
std::optional<std::string> type_problem(const Type& type, const Mesh& mesh);

// The part one device holds: sizes divided by their splits, no splits, no partial.
Type local_type(const Type& type, const Mesh& mesh);

}  // namespace tessera
