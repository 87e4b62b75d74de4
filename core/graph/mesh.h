// SPDX-License-Identifier: Apache-2.0
// The device mesh: named axes, each an ICI (fast, within a slice) times a DCN (slow, between
// slices) size. A description only; it holds no devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
  Mesh() = default;  // No axes: one device, and only unsplit types.
  // Error on a repeated name, a size < 1, or more than kMaxDevices.
  explicit Mesh(std::vector<MeshAxis> axes);

  // The usual axes "replica data mdl" with these ICI sizes (DCN sizes all 1 when empty).
  static Mesh standard(const std::vector<int64_t>& ici, const std::vector<int64_t>& dcn = {});

  const std::vector<MeshAxis>& axes() const { return axes_; }
  bool has(std::string_view name) const;
  int64_t size(std::string_view name) const;      // Error with the nearest name.
  int64_t position(std::string_view name) const;  // Index in axes(); Error with the nearest name.
  int64_t num_devices() const;
  std::string text() const;  // "replica=1 data=4 mdl=2"

  // Devices are numbered 0, 1, …: slices outermost, each slice's devices together; within both, in
  // the order of the axes. A coordinate along an axis counts its DCN part as the outer one.
  std::vector<int64_t> coordinates(int64_t device) const;  // One an axis, in axes() order.
  int64_t device(const std::vector<int64_t>& coordinates) const;

  // The place of a device along mesh axes taken together, the first outermost: 0 … size - 1.
  int64_t index_along(int64_t device, const std::vector<std::string>& mesh_axes) const;
  int64_t size_along(const std::vector<std::string>& mesh_axes) const;
  // The devices that differ from this one along these mesh axes alone, itself included, in the
  // order of index_along.
  std::vector<int64_t> group(int64_t device, const std::vector<std::string>& mesh_axes) const;

 private:
  std::vector<MeshAxis> axes_;
};

}  // namespace tessera
