// SPDX-License-Identifier: Apache-2.0
// The device mesh: named axes whose size is that of their ICI part (fast links within a slice)
// times that of their DCN part (slow links between slices), as in Pax, and how the layers of a
// pipeline are divided among its stages. A description; it has no devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/layer_pieces.h"

namespace tessera {

inline constexpr int64_t kMaxDevices = int64_t{1} << 24;

struct MeshAxis {
  std::string name;
  int64_t ici = 1;
  int64_t dcn = 1;
  int64_t size() const { return ici * dcn; }
  bool operator==(const MeshAxis&) const = default;
};

class Mesh {
 public:
  Mesh() = default;  // No axes: one device; types cannot be split.
  // Error on a repeated name, a size < 1, or more than kMaxDevices.
  explicit Mesh(std::vector<MeshAxis> axes);

  // The axes "replica data mdl" with these ICI sizes and DCN sizes (all 1 if empty).
  static Mesh standard(const std::vector<int64_t>& ici, const std::vector<int64_t>& dcn = {});

  const std::vector<MeshAxis>& axes() const { return axes_; }
  bool has(std::string_view name) const;
  int64_t size(std::string_view name) const;      // Error with the nearest name.
  int64_t position(std::string_view name) const;  // Index in axes(); Error with the nearest name.
  int64_t num_devices() const;
  std::vector<std::string> names() const;
  std::string text() const;  // "replica=1 data=4 mdl=2"

  // Devices are numbered row-major by DCN coordinates, then by ICI coordinates, so the devices of a
  // slice are consecutive. The coordinate along an axis is dcn_coordinate * ici + ici_coordinate.
  std::vector<int64_t> coordinates(int64_t device) const;  // In axes() order.
  int64_t device(const std::vector<int64_t>& coordinates) const;

  // Returns the row-major index (0 … size - 1) of a device along several mesh axes, the first
  // outermost.
  int64_t index_along(int64_t device, const std::vector<std::string>& mesh_axes) const;
  int64_t size_along(const std::vector<std::string>& mesh_axes) const;
  // Returns the devices whose coordinates differ from this one's only along these mesh axes, itself
  // included, in the order of index_along().
  std::vector<int64_t> group(int64_t device, const std::vector<std::string>& mesh_axes) const;

  // Return the size of the axis `stage` (1 without it), and a device's coordinate along it (0).
  int64_t stages() const;
  int64_t stage_of(int64_t device) const;
  // Divides the axis `layers` of all types that split it over `stage`: piece p, on stage p % S, has
  // the p-th of these numbers of layers. Error if the mesh has no axis `stage`, and see
  // LayerPieces.
  void divide_layers(std::vector<int64_t> layers_of_pieces);
  // Returns the pieces; empty if layers were not divided and types are split into equal blocks.
  const LayerPieces& layer_pieces() const { return layer_pieces_; }
  // Returns the pieces of a stack of this many layers: as divided, else one for each stage. Error
  // if the number differs from the division's, or if the stages do not divide them.
  LayerPieces layer_pieces_of(int64_t layers) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
  LayerPieces layer_pieces_;
};

}  // namespace tessera
