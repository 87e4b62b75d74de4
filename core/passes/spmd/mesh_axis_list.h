// SPDX-License-Identifier: Apache-2.0
// A list of mesh axes as a small value type, for searches over layouts.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"

namespace tessera {

// Mesh axes of more than one device by their position in the mesh, in order. A mesh has at most 24
// of them (kMaxDevices).
enum class MeshAxisIndex : uint8_t {};

class MeshAxisList {
 public:
  MeshAxisList() = default;
  MeshAxisList(MeshAxisIndex axis) { push_back(axis); }  // NOLINT(google-explicit-constructor)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const MeshAxisIndex* begin() const { return axes_.data(); }
  const MeshAxisIndex* end() const { return axes_.data() + size_; }
  MeshAxisIndex* begin() { return axes_.data(); }
  MeshAxisIndex* end() { return axes_.data() + size_; }
  MeshAxisIndex operator[](size_t i) const { return axes_[i]; }
  MeshAxisIndex back() const { return axes_[size_ - 1]; }
  bool contains(MeshAxisIndex axis) const { return std::find(begin(), end(), axis) != end(); }

  void push_back(MeshAxisIndex axis) {
    CHECK(size_ < axes_.size());
    axes_[size_++] = axis;
  }
  void pop_back() { truncate(size_ - 1); }
  // Unused entries are zero, so that the comparison below is that of the lists.
  void truncate(size_t size) {
    std::fill(axes_.begin() + static_cast<std::ptrdiff_t>(size), axes_.end(), MeshAxisIndex{});
    size_ = static_cast<uint8_t>(size);
  }

  MeshAxisList from(size_t first) const {
    MeshAxisList result;
    for (size_t i = first; i < size_; ++i) result.push_back(axes_[i]);
    return result;
  }
  MeshAxisList without(const MeshAxisList& removed) const {
    MeshAxisList result;
    for (const MeshAxisIndex axis : *this)
      if (!removed.contains(axis)) result.push_back(axis);
    return result;
  }
  MeshAxisList operator+(const MeshAxisList& other) const {
    MeshAxisList result = *this;
    for (const MeshAxisIndex axis : other) result.push_back(axis);
    return result;
  }
  MeshAxisList sorted() const {
    MeshAxisList result = *this;
    std::sort(result.begin(), result.end());
    return result;
  }
  auto operator<=>(const MeshAxisList&) const = default;

 private:
  std::array<MeshAxisIndex, 24> axes_{};
  uint8_t size_ = 0;
};

}  // namespace tessera
