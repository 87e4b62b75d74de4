// SPDX-License-Identifier: Apache-2.0
#include "core/base/stable_vector.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace tessera {
namespace {

StableVector<std::shared_ptr<int>> numbers(int count) {
  StableVector<std::shared_ptr<int>> items;
  for (int i = 0; i < count; ++i) items.push_back(std::make_shared<int>(i));
  return items;
}

bool has_numbers(const StableVector<std::shared_ptr<int>>& items, int count) {
  int next = 0;
  for (const std::shared_ptr<int>& item : items)
    if (*item != next++) return false;
  for (int i = 0; i < count; ++i)
    if (*items[static_cast<size_t>(i)] != i) return false;
  return next == count && items.size() == static_cast<size_t>(count);
}

TEST_CASE("Elements of a StableVector keep their places while it grows") {
  StableVector<int> items;
  std::vector<int*> places;
  for (int i = 0; i < 1000; ++i) {
    items.push_back(i);
    places.push_back(&items[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < places.size(); ++i) {
    REQUIRE(&items[i] == places[i]);
    REQUIRE(*places[i] == static_cast<int>(i));
  }
  REQUIRE(items.front() == 0);
  REQUIRE(items.back() == 999);
}

TEST_CASE("A StableVector is copied, moved and assigned, at sizes around its blocks") {
  for (const int count : {0, 1, 3, 4, 5, 11, 12, 13, 100}) {
    CAPTURE(count);
    StableVector<std::shared_ptr<int>> items = numbers(count);
    REQUIRE(has_numbers(items, count));
    const StableVector<std::shared_ptr<int>> copy = items;
    REQUIRE(has_numbers(copy, count));
    StableVector<std::shared_ptr<int>> moved = std::move(items);
    REQUIRE(has_numbers(moved, count));
    REQUIRE(items.empty());  // NOLINT(bugprone-use-after-move): defined.
    items = numbers(7);
    items = copy;
    REQUIRE(has_numbers(items, count));
    moved = numbers(2);
    REQUIRE(has_numbers(moved, 2));
    REQUIRE(std::ranges::none_of(copy, [](const auto& item) { return item == nullptr; }));
  }
}

TEST_CASE("Iterators of a StableVector go in both directions and by steps") {
  static_assert(std::random_access_iterator<decltype(std::declval<StableVector<int>&>().begin())>);
  StableVector<int> items;
  for (int i = 0; i < 30; ++i) items.push_back(29 - i);
  REQUIRE(*std::prev(items.end()) == 0);
  REQUIRE(items.begin()[7] == 22);
  REQUIRE(items.end() - items.begin() == 30);
  std::ranges::sort(items);
  REQUIRE(std::ranges::is_sorted(items));
  REQUIRE(*std::ranges::lower_bound(items, 13) == 13);
  REQUIRE(*std::make_reverse_iterator(items.end()) == 29);
}

TEST_CASE("A StableVector destroys its elements once") {
  const auto counted = std::make_shared<int>(0);
  {
    StableVector<std::shared_ptr<int>> items;
    for (int i = 0; i < 9; ++i) items.push_back(counted);
    const StableVector<std::shared_ptr<int>> copy = items;
    REQUIRE(counted.use_count() == 19);
  }
  REQUIRE(counted.use_count() == 1);
}

}  // namespace
}  // namespace tessera
