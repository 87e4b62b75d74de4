// SPDX-License-Identifier: Apache-2.0
// Regions of N-dimensional arrays, and the one strided copy between them. Shards, checkpoint
// pieces, HDF5 hyperslabs and the parts that collectives exchange are all regions.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera {

// Returns the number of elements of an array of this shape.
int64_t element_count(std::span<const int64_t> shape);

// The box [origin, origin + shape) of an array, in elements along each axis. A region of an array
// of rank 0 is its one element.
struct Region {
  std::vector<int64_t> origin;
  std::vector<int64_t> shape;

  static Region whole(std::vector<int64_t> shape) {
    return {std::vector<int64_t>(shape.size(), 0), std::move(shape)};
  }
  int64_t elements() const { return element_count(shape); }
  bool contains(const Region& other) const;
  bool operator==(const Region&) const = default;
};

// Returns the elements that two regions of one array share; nullopt if they share none.
std::optional<Region> intersect(const Region& a, const Region& b);
// Returns whether no two of these regions of one array share an element.
bool are_disjoint(const std::vector<Region>& regions);

// The place of a region in the memory of a row-major array: the analogue of an MPI subarray type.
// It has an order of its own, the row-major order of the region; "packed" bytes are in that order.
// It holds no pointer and allocates nothing.
class Subarray {
 public:
  static constexpr size_t kMaxAxes = 32;  // HDF5 has the same limit.

  // `held`: the array in memory is itself this region of a larger array, and contains `region`.
  Subarray(const Region& held, const Region& region, int64_t element_bytes);
  // `origin`: the region begins there, relative to the array in memory.
  Subarray(std::span<const int64_t> array_shape, std::span<const int64_t> origin,
           std::span<const int64_t> shape, int64_t element_bytes);
  // Makes the bytes [begin, begin + bytes) of an array.
  static Subarray contiguous(int64_t begin, int64_t bytes);

  int64_t begin() const { return begin_; }  // Byte of the array where the first element lies.
  int64_t bytes() const;
  bool is_contiguous() const;  // In the array, as packed bytes always are.

  // Calls visit(byte in the array, packed byte, bytes) for each run of consecutive bytes in the
  // packed range [from, to).
  template <typename Visit>
  void for_each_run(int64_t from, int64_t to, const Visit& visit) const;
  // Copies the packed range [from, to) between the array and a buffer that begins with it.
  void pack(const std::byte* array, int64_t from, int64_t to, std::byte* packed) const;
  void unpack(const std::byte* packed, int64_t from, int64_t to, std::byte* array) const;
  void pack(const std::byte* array, std::byte* packed) const { pack(array, 0, bytes(), packed); }
  void unpack(const std::byte* packed, std::byte* array) const {
    unpack(packed, 0, bytes(), array);
  }

 private:
  friend void copy_region(const Subarray& from, const std::byte* source, const Subarray& to,
                          std::byte* destination);
  // A loop nest over runs of consecutive bytes, innermost loop first.
  struct Runs {
    struct Loop {
      int64_t size, step, other_step;
    };
    int64_t bytes = 0;  // Length of one run.
    size_t rank = 0;
    std::array<Loop, kMaxAxes> loops;

    int64_t count() const {
      int64_t count = bytes == 0 ? 0 : 1;
      for (size_t i = 0; i < rank; ++i) count *= loops[i].size;
      return count;
    }
  };
  Subarray() = default;
  // Returns the longest runs that are consecutive here and, if given, in the other subarray too.
  Runs runs(const Subarray* other = nullptr) const;

  int64_t begin_ = 0;
  int64_t element_bytes_ = 0;
  size_t rank_ = 0;
  std::array<int64_t, kMaxAxes> shape_, steps_;  // Steps are in bytes.
};

// Copies a subarray of `source` to a subarray of `destination` with the same shape.
void copy_region(const Subarray& from, const std::byte* source, const Subarray& to,
                 std::byte* destination);

template <typename Visit>
void Subarray::for_each_run(int64_t from, int64_t to, const Visit& visit) const {
  const Runs runs = this->runs();
  if (from >= to || runs.count() == 0) return;
  std::array<int64_t, kMaxAxes> index;
  int64_t number = from / runs.bytes, start = begin_;
  for (size_t i = 0; i < runs.rank; number /= runs.loops[i++].size) {
    index[i] = number % runs.loops[i].size;
    start += index[i] * runs.loops[i].step;
  }
  for (int64_t within = from % runs.bytes; from < to; within = 0) {
    const int64_t bytes = std::min(runs.bytes - within, to - from);
    visit(start + within, from, bytes);
    from += bytes;
    for (size_t i = 0; i < runs.rank; ++i) {
      start += runs.loops[i].step;
      if (++index[i] < runs.loops[i].size) break;
      start -= runs.loops[i].size * runs.loops[i].step;
      index[i] = 0;
    }
  }
}

}  // namespace tessera
