// SPDX-License-Identifier: Apache-2.0
// Rows of the typing table (docs/graph.md): accepted operands, results and error messages, on a
// mesh of eight devices and, with the same messages, on a mesh of one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {

struct Row {
  std::string op;
  std::vector<std::string> inputs;
  Application apply;
  std::string outcome;
};

inline void run(const std::vector<Row>& rows) {
  const Mesh many = Mesh::standard({1, 2, 4});
  const Mesh one = Mesh::standard({1, 1, 1});
  for (const Row& row : rows) {
    INFO(row.op);
    for (const std::string& type : row.inputs) UNSCOPED_INFO(type);
    REQUIRE(outcome(many, row.inputs, row.apply) == row.outcome);
    REQUIRE(without_numbers(outcome(one, row.inputs, row.apply)) == without_numbers(row.outcome));
  }
}

// A row for each list of operands with its outcome.
using Cases = std::vector<std::pair<std::vector<std::string>, std::string>>;
inline void run(const std::string& op, const Application& apply, const Cases& cases) {
  std::vector<Row> rows;
  for (const auto& [inputs, outcome] : cases) rows.push_back({op, inputs, apply, outcome});
  run(rows);
}

}  // namespace tessera
