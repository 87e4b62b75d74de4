// SPDX-License-Identifier: Apache-2.0
#include "core/io/strided_part.h"

#include "core/base/error.h"

namespace tessera {

void StridedPart::pack(const std::byte* array, int64_t from, int64_t to, std::byte* packed) const {
  for_each_run(from, to, [&](int64_t in_array, int64_t in_part, int64_t bytes) {
    std::memcpy(packed + (in_part - from), array + in_array, static_cast<size_t>(bytes));
  });
}

void StridedPart::unpack(const std::byte* packed, int64_t from, int64_t to,
                         std::byte* array) const {
  for_each_run(from, to, [&](int64_t in_array, int64_t in_part, int64_t bytes) {
    std::memcpy(array + in_array, packed + (in_part - from), static_cast<size_t>(bytes));
  });
}

void copy_part(const StridedPart& from, const std::byte* source, const StridedPart& to,
               std::byte* destination) {
  CHECK(from.sizes == to.sizes && from.run == to.run);
  if (from.run == 0) return;
  // Runs that follow each other on both sides are one.
  const bool joined = from.steps[2] == from.run && to.steps[2] == to.run;
  const int64_t run = joined ? from.run * from.sizes[2] : from.run;
  const int64_t count = joined ? 1 : from.sizes[2];
  for (int64_t i = 0; i < from.sizes[0]; ++i) {
    for (int64_t j = 0; j < from.sizes[1]; ++j) {
      const std::byte* in = source + from.begin + i * from.steps[0] + j * from.steps[1];
      std::byte* out = destination + to.begin + i * to.steps[0] + j * to.steps[1];
      for (int64_t number = 0; number < count; ++number)
        std::memcpy(out + number * to.steps[2], in + number * from.steps[2],
                    static_cast<size_t>(run));
    }
  }
}

}  // namespace tessera
