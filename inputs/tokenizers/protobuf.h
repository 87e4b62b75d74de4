// SPDX-License-Identifier: Apache-2.0
// The wire format of protocol buffers, field by field: enough for the models of SentencePiece. What
// a field means is the caller's to know.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace tessera {

struct ProtobufField {
  uint64_t number = 0;
  uint32_t type = 0;       // Of the wire.
  std::string_view bytes;  // Type 2.
  uint64_t value = 0;      // Other types.
  std::string_view whole;  // The field as it stands in the message, number and all.

  float as_float() const {
    const auto bits = static_cast<uint32_t>(value);
    float number_value = 0;
    std::memcpy(&number_value, &bits, sizeof(number_value));
    return number_value;
  }
};

// The fields of one message. Errors begin with `where`.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view message, const std::string& where)
      : rest_(message), where_(where) {}

  bool next(ProtobufField* field) {
    if (rest_.empty()) return false;
    const std::string_view before = rest_;
    const uint64_t tag = number();
    *field = {};
    field->number = tag >> 3;
    field->type = static_cast<uint32_t>(tag & 7);
    if (field->number == 0) refuse();
    switch (field->type) {
      case 0:
        field->value = number();
        break;
      case 1:
        field->value = fixed<uint64_t>();
        break;
      case 2: {
        const uint64_t size = number();
        if (size > rest_.size()) refuse();
        field->bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5:
        field->value = fixed<uint32_t>();
        break;
      default:
        refuse();
    }
    field->whole = before.substr(0, before.size() - rest_.size());
    return true;
  }

 private:
  [[noreturn]] void refuse() const {
    fail("{}: not a SentencePiece model, or a damaged one", where_);
  }

  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) refuse();
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  template <typename T>
  T fixed() {
    if (rest_.size() < sizeof(T)) refuse();
    T value = 0;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }

  std::string_view rest_;
  const std::string& where_;
};

}  // namespace tessera
