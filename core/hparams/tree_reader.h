// SPDX-License-Identifier: Apache-2.0
// Typed reading of one node of a Tree, with its path for messages. Text typed on a command line is
// understood here, by what the field expects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/hparams/tree.h"

namespace tessera {

struct TreeReader {
  const Tree& tree;
  std::string path;

  bool to_bool() const;
  int64_t to_int(int64_t lowest, int64_t highest) const;
  double to_double() const;
  std::string to_string() const;
  DType to_dtype() const;
  // Index into `names`.
  size_t to_enumerator(const std::vector<std::string>& names) const;

  bool unsets() const;  // Unset, or the text "unset".
  // The node as a list or a table, text taken apart: "1,4,1" and "[1,4,1]", "{a = 1}" and
  // "a=1,b=2".
  Tree to_list() const;
  Tree to_table() const;

  // Error for the keys of a table that are none of a struct's fields.
  void reject_unknown(std::string_view class_name, const std::vector<std::string>& fields) const;
  // "<path>: got <value>, expected <expected>".
  [[noreturn]] void fail_type(std::string_view expected) const;
};

}  // namespace tessera
