// SPDX-License-Identifier: Apache-2.0
// A sequence that grows at its end without moving its elements. It consists of blocks, each twice
// as long as the one before: few allocations, and none of more than the elements need together.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

namespace tessera {

template <typename T>
class StableVector {
 public:
  StableVector() = default;
  StableVector(const StableVector& other) {
    for (const T& item : other) push_back(item);
  }
  StableVector(StableVector&& other) noexcept { swap(other); }
  StableVector& operator=(StableVector other) noexcept {
    swap(other);
    return *this;
  }
  ~StableVector() {
    for (size_t k = 0; k < kMostBlocks && blocks_[k] != nullptr; ++k) {
      std::destroy_n(blocks_[k], std::min(length(k), size_ - begin_of(k)));
      std::allocator<T>().deallocate(blocks_[k], length(k));
    }
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return *at(i); }
  const T& operator[](size_t i) const { return *at(i); }
  const T& front() const { return (*this)[0]; }
  const T& back() const { return (*this)[size_ - 1]; }

  template <typename Item = T>
  void push_back(Item&& item) {
    const size_t k = block_of(size_);
    if (blocks_[k] == nullptr) blocks_[k] = std::allocator<T>().allocate(length(k));
    std::construct_at(at(size_), std::forward<Item>(item));
    ++size_;
  }

  template <typename Vector, typename Item>
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = Item*;
    using reference = Item&;

    Iterator() = default;
    Iterator(Vector* vector, size_t i) : vector_(vector), i_(i) {}

    Item& operator*() const { return (*vector_)[i_]; }
    Item* operator->() const { return &**this; }
    Item& operator[](difference_type n) const { return *(*this + n); }
    Iterator& operator+=(difference_type n) {
      i_ += static_cast<size_t>(n);
      return *this;
    }
    Iterator& operator-=(difference_type n) { return *this += -n; }
    Iterator& operator++() { return *this += 1; }
    Iterator& operator--() { return *this -= 1; }
    Iterator operator++(int) { return std::exchange(*this, *this + 1); }
    Iterator operator--(int) { return std::exchange(*this, *this - 1); }
    friend Iterator operator+(Iterator at, difference_type n) { return at += n; }
    friend Iterator operator+(difference_type n, Iterator at) { return at += n; }
    friend Iterator operator-(Iterator at, difference_type n) { return at -= n; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) {
      return static_cast<difference_type>(a.i_ - b.i_);
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.i_ == b.i_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.i_ <=> b.i_; }

   private:
    Vector* vector_ = nullptr;
    size_t i_ = 0;
  };
  auto begin() { return Iterator<StableVector, T>(this, 0); }
  auto end() { return Iterator<StableVector, T>(this, size_); }
  auto begin() const { return Iterator<const StableVector, const T>(this, 0); }
  auto end() const { return Iterator<const StableVector, const T>(this, size_); }

 private:
  static constexpr size_t kFirstLength = 4;
  static constexpr size_t kMostBlocks = 28;  // Of 2^30 elements together.

  // Block k has elements [begin_of(k), begin_of(k) + length(k)).
  static size_t length(size_t k) { return kFirstLength << k; }
  static size_t begin_of(size_t k) { return length(k) - kFirstLength; }
  static size_t block_of(size_t i) {
    return static_cast<size_t>(std::bit_width(i / kFirstLength + 1)) - 1;
  }
  T* at(size_t i) const {
    const size_t k = block_of(i);
    return blocks_[k] + (i - begin_of(k));
  }
  void swap(StableVector& other) noexcept {
    std::swap(blocks_, other.blocks_);
    std::swap(size_, other.size_);
  }

  std::array<T*, kMostBlocks> blocks_ = {};
  size_t size_ = 0;
};

}  // namespace tessera
