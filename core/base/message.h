// SPDX-License-Identifier: Apache-2.0
// Serializes values that the processes of a run send each other (ProcessGroup::broadcast and
// all_gather). Numbers are their bytes in memory, since all processes run the same build; strings,
// vectors and maps are their size and their elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/error.h"

namespace tessera {

template <typename T>
concept NumberOrEnum = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Appends strings and vectors of plain values.
template <typename T>
concept Resizable = std::is_trivially_copyable_v<typename T::value_type> && requires(T value) {
  value.resize(0);
  value.data();
};

class MessageWriter {
 public:
  void add(NumberOrEnum auto value) { append(&value, sizeof(value)); }
  template <Resizable T>
  void add(const T& values) {
    add(values.size());
    append(values.data(), values.size() * sizeof(*values.data()));
  }
  template <typename Key, typename Value>
  void add(const std::map<Key, Value>& entries) {
    add(entries.size());
    for (const auto& [key, value] : entries) {
      add(key);
      add(value);
    }
  }
  const std::string& text() const { return text_; }

 private:
  void append(const void* bytes, size_t size) {
    text_.append(static_cast<const char*>(bytes), size);
  }

  std::string text_;
};

// Reads values in the order in which they were added. Throws if the text is too short.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : rest_(text) {}
  bool at_end() const { return rest_.empty(); }

  void take(NumberOrEnum auto& value) { copy(&value, sizeof(value)); }
  template <Resizable T>
  void take(T& values) {
    values.resize(take_size(sizeof(*values.data())));
    copy(values.data(), values.size() * sizeof(*values.data()));
  }
  template <typename Key, typename Value>
  void take(std::map<Key, Value>& entries) {
    for (size_t left = take_size(1); left > 0; --left) {
      Key key;
      take(key);
      take(entries[key]);
    }
  }

 private:
  size_t take_size(size_t element_bytes) {
    size_t size = 0;
    take(size);
    CHECK(size <= rest_.size() / element_bytes, "a message of another process is cut short");
    return size;
  }
  void copy(void* to, size_t size) {
    CHECK(size <= rest_.size(), "a message of another process is cut short");
    std::copy_n(rest_.data(), size, static_cast<char*>(to));
    rest_.remove_prefix(size);
  }

  std::string_view rest_;
};

template <typename... T>
std::string pack(const T&... values) {
  MessageWriter message;
  (message.add(values), ...);
  return message.text();
}

template <typename... T>
void unpack(std::string_view text, T&... values) {
  MessageReader message(text);
  (message.take(values), ...);
}

}  // namespace tessera
