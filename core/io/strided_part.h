// SPDX-License-Identifier: Apache-2.0
// A part of an array as runs of consecutive bytes at regular places. Two parts of the same sizes
// hold the same elements in the same order, wherever they lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera {

struct StridedPart {
  int64_t begin = 0;                         // Of the first run, in bytes of the array.
  int64_t run = 0;                           // Bytes.
  std::array<int64_t, 3> sizes = {1, 1, 1};  // Of runs; the last varies fastest.
  std::array<int64_t, 3> steps = {0, 0, 0};  // In bytes.

  // All of an array, or of the bytes [begin, begin + bytes) of it.
  static StridedPart contiguous(int64_t begin, int64_t bytes) {
    return {.begin = begin, .run = bytes};
  }

  int64_t runs() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t bytes() const { return runs() * run; }
  bool is_contiguous() const { return runs() <= 1; }
  int64_t offset_of(int64_t number) const {  // Of a run.
    return begin + number / (sizes[1] * sizes[2]) * steps[0] +
           number / sizes[2] % sizes[1] * steps[1] + number % sizes[2] * steps[2];
  }

  // visit(offset in the array, offset in the part, bytes) for what lies in [from, to) of the part.
  template <typename Visit>
  void for_each_run(int64_t from, int64_t to, const Visit& visit) const {
    if (run == 0) return;
    for (int64_t at = from; at < to;) {
      const int64_t number = at / run, within = at % run;
      const int64_t bytes = run - within < to - at ? run - within : to - at;
      visit(offset_of(number) + within, at, bytes);
      at += bytes;
    }
  }

  // Bytes [from, to) of the part, in its order, between the array and a packed buffer that begins
  // with them.
  void pack(const std::byte* array, int64_t from, int64_t to, std::byte* packed) const;
  void unpack(const std::byte* packed, int64_t from, int64_t to, std::byte* array) const;
};

// From one array's part to another's, of the same sizes and run.
void copy_part(const StridedPart& from, const std::byte* source, const StridedPart& to,
               std::byte* destination);

}  // namespace tessera
