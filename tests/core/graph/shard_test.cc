// SPDX-License-Identifier: Apache-2.0
// The rows of a batch that several devices hold together.
#include "core/graph/type.h"
#include "tests/support/catch.h"

namespace tessera {
namespace {

using Rows = std::vector<RowRange>;

TEST_CASE("Adjacent devices along the batch hold one range of rows") {
  const Mesh mesh = Mesh::standard({1, 4, 2});
  const Type type = parse_type("i32[\"batch/replica/data=16 seq=8\"]");
  REQUIRE(rows_of(type, mesh, 0, 8) == Rows{{0, 16}});
  REQUIRE(rows_of(type, mesh, 0, 2) == Rows{{0, 4}});  // Both have the same coordinate along data.
  REQUIRE(rows_of(type, mesh, 2, 4) == Rows{{4, 12}});
  REQUIRE(rows_of(type, mesh, 7, 1) == Rows{{12, 16}});
}

TEST_CASE("Every device holds all rows of an unsplit value") {
  const Mesh mesh = Mesh::standard({1, 4, 2});
  REQUIRE(rows_of(parse_type("i32[\"batch=3\"]"), mesh, 5, 1) == Rows{{0, 3}});
}

TEST_CASE("The rows of a slice are not contiguous if an outer mesh axis is within slices") {
  // Two slices along data; each holds both replicas.
  const Mesh mesh = Mesh::standard({2, 1, 1}, {1, 2, 1});
  const Type type = parse_type("i32[\"batch/replica/data=8\"]");
  REQUIRE(rows_of(type, mesh, 0, 2) == Rows{{0, 2}, {4, 6}});
  REQUIRE(rows_of(type, mesh, 2, 2) == Rows{{2, 4}, {6, 8}});
  REQUIRE(rows_of(type, mesh, 0, 3) == Rows{{0, 6}});
  REQUIRE(rows_of(type, mesh, 0, 4) == Rows{{0, 8}});
}

}  // namespace
}  // namespace tessera
