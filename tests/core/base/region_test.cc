// SPDX-License-Identifier: Apache-2.0
#include "core/base/region.h"

#include <random>

#include "tests/support/catch.h"

namespace tessera {
namespace {

// The offset of each element of `region` in the row-major array `held`, one index at a time.
std::vector<size_t> offsets_in(const Region& held, const Region& region) {
  std::vector<size_t> offsets;
  for (int64_t number = 0; number < region.elements(); ++number) {
    int64_t rest = number, offset = 0, stride = 1;
    for (size_t axis = region.shape.size(); axis-- > 0; rest /= region.shape[axis]) {
      const int64_t index = region.origin[axis] + rest % region.shape[axis];
      offset += (index - held.origin[axis]) * stride;
      stride *= held.shape[axis];
    }
    offsets.push_back(static_cast<size_t>(offset));
  }
  return offsets;
}

// A random region that contains `inner`.
Region around(const Region& inner, std::mt19937& random) {
  Region outer = inner;
  for (size_t i = 0; i < inner.shape.size(); ++i) {
    const int64_t before = random() % 3 == 0 ? random() % 3 : 0;
    outer.origin[i] -= before;
    outer.shape[i] += before + (random() % 3 == 0 ? random() % 3 : 0);
  }
  return outer;
}

Region random_region(size_t rank, std::mt19937& random) {
  Region region;
  for (size_t i = 0; i < rank; ++i) {
    region.origin.push_back(5 + random() % 4);
    region.shape.push_back(1 + random() % 4);
  }
  return region;
}

std::vector<std::byte> random_bytes(int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

TEST_CASE("a region is copied element by element between arrays of any rank") {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    const Region region = random_region(random() % 6, random);
    const Region from = around(region, random), to = around(region, random);
    const int64_t width = 1 + random() % 4;
    const auto source = random_bytes(from.elements() * width, random);
    auto copied = random_bytes(to.elements() * width, random);
    auto expected = copied;
    const auto in = offsets_in(from, region), out = offsets_in(to, region);
    for (size_t i = 0; i < in.size(); ++i)
      for (size_t k = 0; k < static_cast<size_t>(width); ++k)
        expected[out[i] * static_cast<size_t>(width) + k] =
            source[in[i] * static_cast<size_t>(width) + k];
    copy_region(Subarray(from, region, width), source.data(), Subarray(to, region, width),
                copied.data());
    CAPTURE(region.shape, from.shape, to.shape, width);
    REQUIRE(copied == expected);
  }
}

TEST_CASE("any range of packed bytes is packed and unpacked") {
  std::mt19937 random(8);
  for (int trial = 0; trial < 2000; ++trial) {
    const Region region = random_region(random() % 5, random);
    const Region held = around(region, random);
    const Subarray subarray(held, region, 2);
    const auto array = random_bytes(held.elements() * 2, random);
    const auto offsets = offsets_in(held, region);
    std::vector<std::byte> packed;
    for (const size_t offset : offsets)
      packed.insert(packed.end(), {array[2 * offset], array[2 * offset + 1]});
    REQUIRE(subarray.bytes() == std::ssize(packed));

    const int64_t from = static_cast<int64_t>(random() % (packed.size() + 1));
    const int64_t to = from + static_cast<int64_t>(random() % (packed.size() + 1 - from));
    std::vector<std::byte> range(static_cast<size_t>(to - from));
    subarray.pack(array.data(), from, to, range.data());
    CAPTURE(region.shape, held.shape, from, to);
    REQUIRE(range == std::vector<std::byte>(packed.begin() + from, packed.begin() + to));

    auto changed = random_bytes(std::ssize(array), random);
    auto expected = changed;
    for (int64_t i = from; i < to; ++i)
      expected[2 * offsets[static_cast<size_t>(i / 2)] + static_cast<size_t>(i % 2)] =
          range[static_cast<size_t>(i - from)];
    subarray.unpack(range.data(), from, to, changed.data());
    REQUIRE(changed == expected);
  }
}

TEST_CASE("runs are as long as the memory is consecutive") {
  const auto runs_of = [](const Subarray& subarray) {
    std::vector<std::vector<int64_t>> runs;
    subarray.for_each_run(0, subarray.bytes(), [&](int64_t array, int64_t packed, int64_t bytes) {
      runs.push_back({array, packed, bytes});
    });
    return runs;
  };
  using Runs = std::vector<std::vector<int64_t>>;
  const Region whole = Region::whole({4, 3, 2});
  const Subarray rows(whole, {{1, 0, 0}, {2, 3, 2}}, 4);
  REQUIRE(rows.is_contiguous());
  REQUIRE(rows.begin() == 24);
  REQUIRE(runs_of(rows) == Runs{{24, 0, 48}});
  const Subarray columns(whole, {{1, 1, 0}, {2, 2, 2}}, 4);
  REQUIRE_FALSE(columns.is_contiguous());
  REQUIRE(runs_of(columns) == Runs{{32, 0, 16}, {56, 16, 16}});
  REQUIRE(Subarray(whole, {{2, 1, 0}, {1, 2, 2}}, 4).is_contiguous());
  REQUIRE(runs_of(Subarray::contiguous(5, 7)) == Runs{{5, 0, 7}});
  REQUIRE(runs_of(Subarray(whole, {{1, 1, 0}, {2, 0, 2}}, 4)).empty());
}

TEST_CASE("regions intersect and are disjoint") {
  const Region a{{0, 0}, {4, 4}}, b{{2, 3}, {4, 4}}, c{{4, 0}, {2, 2}};
  REQUIRE(intersect(a, b) == Region{{2, 3}, {2, 1}});
  REQUIRE_FALSE(intersect(a, c));
  REQUIRE(a.contains({{1, 1}, {3, 3}}));
  REQUIRE_FALSE(a.contains(b));
  REQUIRE(are_disjoint({a, c}));
  REQUIRE_FALSE(are_disjoint({a, c, b}));
  const Region left{{0, 0}, {2, 4}}, right{{2, 0}, {2, 4}};
  REQUIRE(are_disjoint({left, right}));
  REQUIRE_FALSE(are_disjoint({left, right, left}));
  const Region scalar;
  REQUIRE(scalar.elements() == 1);
  REQUIRE(intersect(scalar, scalar) == scalar);
}

}  // namespace
}  // namespace tessera
