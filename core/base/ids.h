// SPDX-License-Identifier: Apache-2.0
// Typed indices: an Id<Tag> names an element of one kind of table, and an IndexedVector is such a
// table. Ids of different kinds, and integers, do not convert to each other implicitly.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace tessera {

template <typename Tag>
class Id {
 public:
  constexpr Id() = default;  // kNone.
  constexpr explicit Id(size_t index) : value_(static_cast<int32_t>(index)) {}

  constexpr int32_t value() const { return value_; }  // -1: kNone.
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  constexpr Id next() const { return Id(index() + 1); }
  friend constexpr auto operator<=>(Id, Id) = default;  // kNone is less than all others.

 private:
  int32_t value_ = -1;
};

// The absent id, of any kind.
struct NoId {
  template <typename Tag>
  constexpr operator Id<Tag>() const {  // NOLINT(google-explicit-constructor): converts on purpose.
    return {};
  }
};
inline constexpr NoId kNone;

// The ids [first, end), in increasing or decreasing order.
template <typename AnId>
class IdRange {
 public:
  struct Iterator {
    int64_t at = 0;
    int64_t step = 1;
    AnId operator*() const { return AnId(static_cast<size_t>(at)); }
    Iterator& operator++() {
      at += step;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at == other.at; }
  };

  IdRange(AnId first, AnId end) : first_(first.value()), end_(end.value()) {}
  explicit IdRange(AnId end) : IdRange(AnId(0), end) {}

  Iterator begin() const { return {first_, step_}; }
  Iterator end() const { return {end_, step_}; }
  IdRange reversed() const {
    IdRange range = *this;
    range.first_ = end_ - step_;
    range.end_ = first_ - step_;
    range.step_ = -step_;
    return range;
  }

 private:
  int64_t first_, end_, step_ = 1;
};

// A sequence indexed by ids, which are 0, 1, … in order.
template <typename AnId, typename T, typename Container = std::vector<T>>
class IndexedVector {
 public:
  IndexedVector() = default;
  explicit IndexedVector(size_t size, const T& value = T()) : items_(size, value) {}

  decltype(auto) operator[](AnId id) { return items_[id.index()]; }
  decltype(auto) operator[](AnId id) const { return items_[id.index()]; }
  template <typename Item = T>
  AnId push_back(Item&& item) {
    items_.push_back(std::forward<Item>(item));
    return AnId(items_.size() - 1);
  }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  bool has(AnId id) const { return id.value() >= 0 && id.index() < items_.size(); }
  AnId end_id() const { return AnId(items_.size()); }
  IdRange<AnId> ids() const { return IdRange<AnId>(end_id()); }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  const T& front() const { return items_.front(); }
  const T& back() const { return items_.back(); }

 private:
  Container items_;
};

}  // namespace tessera

template <typename Tag>
struct std::hash<tessera::Id<Tag>> {
  size_t operator()(tessera::Id<Tag> id) const { return std::hash<int32_t>()(id.value()); }
};

template <typename Tag>
struct fmt::formatter<tessera::Id<Tag>> : fmt::formatter<int32_t> {
  template <typename Context>
  auto format(tessera::Id<Tag> id, Context& context) const {
    return fmt::formatter<int32_t>::format(id.value(), context);
  }
};
