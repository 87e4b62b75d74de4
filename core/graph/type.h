// SPDX-License-Identifier: Apache-2.0
// Types of tensors, which include the layout: dtype, named axes with global sizes and the mesh axes
// that split them, and the mesh axes over which the value is partial (a pending sum or maximum).
// Written bf16["batch/data seq embed/mdl" + sum(replica)] (named axes: Levanter/Haliax; layouts in
// types: seqax). A type denotes one global array; its layout decides only where the parts are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/region.h"
#include "core/graph/mesh.h"

namespace tessera {

// The size limit of a tensor. Below it, sizes in bytes and their sums over a graph fit in 64 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 44;

struct Axis {
  std::string name;
  int64_t size = 0;                // Global size.
  std::vector<std::string> split;  // Mesh axes, outermost first.
  std::string text() const;        // "batch/replica/data"
  bool split_over(std::string_view mesh_axis) const;
  bool operator==(const Axis&) const = default;
};

enum class PartialKind { kNone, kSum, kMax };

// The mesh axes over which a value is partial, in mesh order; empty if and only if kind is kNone.
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

  int64_t rank() const { return std::ssize(axes); }
  int64_t elements() const;                   // Global count.
  int64_t bytes() const;                      // Global.
  int64_t find(std::string_view axis) const;  // Position, or -1.
  bool has(std::string_view axis) const { return find(axis) >= 0; }
  const Axis& axis(std::string_view name) const;  // Error that lists the axes.
  std::vector<std::string> names() const;

  std::string text() const;                    // bf16["batch/data seq embed/mdl" + sum(mdl)]
  std::string text_sized() const;              // bf16["batch/data=32 seq=128"], for dumps.
  void append_sized(std::string& text) const;  // The same, appended.
  std::string layout() const;                  // batch/data seq embed/mdl + sum(mdl)
};

// Parses "batch/data seq embed/mdl" into axes of size 0. Error on an empty name, a repeated axis or
// a mesh axis used twice.
std::vector<Axis> parse_axes(std::string_view text);

// Parses axes with optional sizes ("batch/data=32") and partial ("… + sum(mdl)"). The dtype is not
// set.
Type parse_layout(std::string_view text);

// Parses the output of text_sized(): bf16["batch/data=32 seq=128" + sum(mdl)].
Type parse_type(std::string_view text);

// Parses "embed mlp" into {"embed", "mlp"}. Error on splits, sizes and partials.
std::vector<std::string> parse_names(std::string_view text);

// Makes a type; for example make_type(DType::kF32, {{"batch", 4}, {"seq", 8, {"data"}}}).
Type make_type(DType dtype, std::vector<Axis> axes);

// Returns why a type is illegal on a mesh, or nullopt: a repeated axis, an unknown mesh axis, a
// mesh axis used twice (or both split and partial), a size that the split does not divide ("heads=4
// cannot be split by mdl*data=8; the nearest size that can is …"), layers that are not those of the
// mesh's pieces, more than kMaxElements elements.
std::optional<std::string> type_problem(const Type& type, const Mesh& mesh);

// Returns whether this is the axis `layers`, split over `stage` into the pieces of
// Mesh::divide_layers().
bool is_in_pieces(const Axis& axis, const Mesh& mesh);

// Returns the type with `axis` whole. The mesh axes that split it split the first other axis that
// they divide, innermost; if there is none, the value is replicated along them.
Type with_whole_axis(Type type, std::string_view axis, const Mesh& mesh);

// Returns the type of one device's part: sizes divided by their splits, no splits, no partial. For
// layers in pieces the size is LayerPieces::rows().
Type local_type(const Type& type, const Mesh& mesh);

// Returns whether any axis of `type` is split over `mesh_axis`.
bool split_over(const Type& type, std::string_view mesh_axis);

// A region of a value that a device holds, and its place in the device's part (local_type).
struct ShardBlock {
  Region global;
  std::vector<int64_t> local_origin;
  Region local() const { return {local_origin, global.shape}; }
  bool operator==(const ShardBlock&) const = default;
};

// Returns the regions of a value of this type that `device` holds (for a partial value: holds terms
// of), in the order of its memory. It is one, the whole part, except for layers in pieces: then one
// for each chunk of the device's stage, and they are less than the part if it has padding.
std::vector<ShardBlock> shard_blocks(const Type& type, const Mesh& mesh, int64_t device);

// Returns whether `device` is the first of the devices that hold the same blocks. It writes them to
// checkpoints, and sums over the array count only its copy. `stages`: those that hold the array
// (ascending); empty: all.
bool owns_block(const Type& type, const Mesh& mesh, int64_t device,
                std::span<const int64_t> stages = {});

// Positions [begin, end) along the first axis of a value.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const RowRange&) const = default;
};

// Returns the rows of a value that devices [first_device, first_device + count) hold together, as
// ascending ranges that do not touch. There may be several if the first axis is split over several
// slices or is that of layers in pieces.
std::vector<RowRange> rows_of(const Type& type, const Mesh& mesh, int64_t first_device,
                              int64_t count);

}  // namespace tessera
