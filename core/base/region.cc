// SPDX-License-Identifier: Apache-2.0
#include "core/base/region.h"

#include <cstring>
#include <functional>
#include <numeric>
#include <set>

#include "core/base/error.h"

namespace tessera {
namespace {

// Returns whether the regions have one shape and lie at multiples of it, as a mesh divides arrays.
bool are_on_a_grid(const std::vector<Region>& regions) {
  return std::ranges::all_of(regions, [&](const Region& region) {
    if (region.shape != regions.front().shape) return false;
    for (size_t i = 0; i < region.shape.size(); ++i)
      if (region.shape[i] == 0 || region.origin[i] % region.shape[i] != 0) return false;
    return true;
  });
}

}  // namespace

int64_t element_count(std::span<const int64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

bool Region::contains(const Region& other) const {
  for (size_t i = 0; i < shape.size(); ++i)
    if (other.origin[i] < origin[i] || other.origin[i] + other.shape[i] > origin[i] + shape[i])
      return false;
  return true;
}

std::optional<Region> intersect(const Region& a, const Region& b) {
  Region common = b;
  for (size_t i = 0; i < b.shape.size(); ++i) {
    const int64_t begin = std::max(a.origin[i], b.origin[i]);
    const int64_t end = std::min(a.origin[i] + a.shape[i], b.origin[i] + b.shape[i]);
    if (begin >= end) return std::nullopt;
    common.origin[i] = begin;
    common.shape[i] = end - begin;
  }
  return common;
}

bool are_disjoint(const std::vector<Region>& regions) {
  if (regions.size() < 2) return true;
  if (are_on_a_grid(regions)) {
    std::set<std::vector<int64_t>> origins;
    for (const Region& region : regions) origins.insert(region.origin);
    return origins.size() == regions.size();
  }
  for (size_t i = 0; i < regions.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (intersect(regions[i], regions[j])) return false;
  return true;
}

Subarray::Subarray(const Region& held, const Region& region, int64_t element_bytes)
    : Subarray(held.shape, region.origin, region.shape, element_bytes) {
  for (size_t i = 0; i < rank_; ++i) begin_ -= held.origin[i] * steps_[i];
}

Subarray::Subarray(std::span<const int64_t> array_shape, std::span<const int64_t> origin,
                   std::span<const int64_t> shape, int64_t element_bytes)
    : element_bytes_(element_bytes), rank_(array_shape.size()) {
  CHECK(rank_ <= kMaxAxes && origin.size() == rank_ && shape.size() == rank_,
        "a region of rank {} and {} of an array of rank {}", origin.size(), shape.size(), rank_);
  int64_t step = element_bytes;
  for (size_t i = rank_; i-- > 0; step *= array_shape[i]) {
    shape_[i] = shape[i];
    steps_[i] = step;
    begin_ += origin[i] * step;
  }
}

Subarray Subarray::contiguous(int64_t begin, int64_t bytes) {
  Subarray result;
  result.begin_ = begin;
  result.element_bytes_ = bytes;
  return result;
}

int64_t Subarray::bytes() const {
  return element_bytes_ * element_count(std::span(shape_).first(rank_));
}

bool Subarray::is_contiguous() const { return runs().count() <= 1; }

Subarray::Runs Subarray::runs(const Subarray* other) const {
  if (other == nullptr) other = this;
  Runs runs{.bytes = element_bytes_};
  for (size_t i = rank_; i-- > 0;) {
    const int64_t size = shape_[i], step = steps_[i], other_step = other->steps_[i];
    if (size == 1) continue;
    if (runs.rank == 0 && step == runs.bytes && other_step == runs.bytes) {
      runs.bytes *= size;
      continue;
    }
    if (runs.rank > 0) {
      Runs::Loop& last = runs.loops[runs.rank - 1];
      if (step == last.size * last.step && other_step == last.size * last.other_step) {
        last.size *= size;
        continue;
      }
    }
    runs.loops[runs.rank++] = {size, step, other_step};
  }
  return runs;
}

void Subarray::pack(const std::byte* array, int64_t from, int64_t to, std::byte* packed) const {
  for_each_run(from, to, [&](int64_t in_array, int64_t in_packed, int64_t bytes) {
    std::memcpy(packed + (in_packed - from), array + in_array, static_cast<size_t>(bytes));
  });
}

void Subarray::unpack(const std::byte* packed, int64_t from, int64_t to, std::byte* array) const {
  for_each_run(from, to, [&](int64_t in_array, int64_t in_packed, int64_t bytes) {
    std::memcpy(array + in_array, packed + (in_packed - from), static_cast<size_t>(bytes));
  });
}

void copy_region(const Subarray& from, const std::byte* source, const Subarray& to,
                 std::byte* destination) {
  CHECK(from.rank_ == to.rank_ && from.element_bytes_ == to.element_bytes_ &&
        std::equal(from.shape_.begin(), from.shape_.begin() + static_cast<int64_t>(from.rank_),
                   to.shape_.begin()));
  Subarray::Runs runs = from.runs(&to);
  if (runs.count() == 0) return;
  if (runs.rank == 0) runs.loops[runs.rank++] = {1, 0, 0};
  const Subarray::Runs::Loop inner = runs.loops[0];
  const std::byte* in = source + from.begin_;
  std::byte* out = destination + to.begin_;
  std::array<int64_t, Subarray::kMaxAxes> index{};
  for (size_t axis = 1;;) {
    for (int64_t i = 0; i < inner.size; ++i)
      std::memcpy(out + i * inner.other_step, in + i * inner.step, static_cast<size_t>(runs.bytes));
    for (axis = 1; axis < runs.rank; ++axis) {
      const Subarray::Runs::Loop& loop = runs.loops[axis];
      in += loop.step, out += loop.other_step;
      if (++index[axis] < loop.size) break;
      in -= loop.size * loop.step, out -= loop.size * loop.other_step;
      index[axis] = 0;
    }
    if (axis == runs.rank) return;
  }
}

}  // namespace tessera
