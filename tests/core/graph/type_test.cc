// SPDX-License-Identifier: Apache-2.0
// Types as text, illegal types on a mesh, and the rows that several devices hold together.
#include "core/graph/type.h"

#include <cstdint>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

TEST_CASE("A type prints as it is parsed") {
  const std::string text = "bf16[\"batch/replica/data=32 seq=128 embed/mdl=64\"]";
  const Type type = parse_type(text);
  REQUIRE(type.dtype == DType::kBF16);
  REQUIRE(type.axis("batch").size == 32);
  REQUIRE(type.axis("batch").split == std::vector<std::string>{"replica", "data"});
  REQUIRE(type.text_sized() == text);
  REQUIRE(type.text() == "bf16[\"batch/replica/data seq embed/mdl\"]");
  REQUIRE(type.layout() == "batch/replica/data seq embed/mdl");

  const Type partial = parse_type("f32[\"batch=4\" + sum(data, mdl)]");
  REQUIRE(partial.text() == "f32[\"batch\" + sum(data, mdl)]");
  REQUIRE(partial.partial.kind == PartialKind::kSum);
  REQUIRE(parse_type("f32[\"\"]").rank() == 0);
  REQUIRE(parse_type("f32[\"\" + max(mdl)]").partial.kind == PartialKind::kMax);
}

TEST_CASE("Errors in layouts give the position") {
  const auto error = [](const char* text) { return error_of([&] { parse_layout(text); }); };
  REQUIRE(error("batch//data") ==
          "layout \"batch//data\": expected the name of a mesh axis at character 7, got '/'");
  REQUIRE(error("batch/") ==
          "layout \"batch/\": expected the name of a mesh axis at character 7, got its end");
  REQUIRE(error("/data") ==
          "layout \"/data\": expected the name of an axis at character 1, got '/'");
  REQUIRE(error("batch,seq") == "layout \"batch,seq\": unexpected ',' at character 6");
  REQUIRE(error("batch=x") == "layout \"batch=x\": expected the size of batch after '='");
  REQUIRE(error("a b a") == "layout \"a b a\": axis 'a' is named twice");
  REQUIRE(error("a/mdl b/mdl") == "layout \"a/mdl b/mdl\": mesh axis 'mdl' is used twice");
  REQUIRE(error("a/mdl + sum(mdl)") ==
          "layout \"a/mdl + sum(mdl)\": mesh axis 'mdl' is used twice");
  REQUIRE(error("a + mean(mdl)") ==
          "layout \"a + mean(mdl)\": a partial is sum(…) or max(…), not 'mean'");
  REQUIRE(error("a + sum mdl") == "layout \"a + sum mdl\": expected '(' after 'sum'");
  REQUIRE(error("a + sum(mdl") == "layout \"a + sum(mdl\": expected ')' at character 12");
  REQUIRE(error("a + sum(mdl) b") == "layout \"a + sum(mdl) b\": unexpected 'b' at character 14");
}

TEST_CASE("Axes and names accept less than layouts") {
  REQUIRE(parse_axes("batch/data seq").size() == 2);
  REQUIRE(parse_names("batch seq") == std::vector<std::string>{"batch", "seq"});
  REQUIRE(error_of([] { parse_axes("a + sum(mdl)"); }) ==
          "axes \"a + sum(mdl)\": a partial is not allowed here");
  REQUIRE(error_of([] { parse_names("a b/mdl"); }) ==
          "axes \"a b/mdl\": plain names expected, got 'b/mdl'");
  REQUIRE(error_of([] { parse_type("f32"); }) ==
          "type 'f32' is not of the form f32[\"batch=4 embed=8\"]");
}

TEST_CASE("A type knows its size and its axes") {
  const Type type = parse_type("bf16[\"batch/data=4 embed=8\"]");
  REQUIRE(type.elements() == 32);
  REQUIRE(type.bytes() == 64);
  REQUIRE(type.find("embed") == 1);
  REQUIRE(type.find("seq") == -1);
  REQUIRE(error_of([&] { type.axis("embd"); }) ==
          "no axis 'embd' in bf16[\"batch/data embed\"]; did you mean 'embed'?");
}

TEST_CASE("Illegal types on a mesh") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const auto problem = [&](Type type) { return type_problem(type, mesh).value_or("none"); };
  REQUIRE(problem(parse_type("f32[\"a/data/mdl=16 b=3\" + sum(replica)]")) == "none");
  REQUIRE(problem(make_type(DType::kF32, {{"heads", 4, {"mdl", "data"}}})) ==
          "heads=4 cannot be split by mdl*data=8; the nearest size that can is 8");
  REQUIRE(problem(make_type(DType::kF32, {{"heads", 13, {"mdl"}}})) ==
          "heads=13 cannot be split by mdl=4; the nearest size that can is 12");
  REQUIRE(problem(make_type(DType::kF32, {{"a", 8, {"mdl"}}, {"b", 8, {"mdl"}}})) ==
          "f32[\"a/mdl b/mdl\"] uses mdl for both a and b");
  REQUIRE(problem(make_type(DType::kF32, {{"a", 8, {}}, {"a", 8, {}}})) ==
          "f32[\"a a\"] has axis a twice");
  REQUIRE(problem(make_type(DType::kF32, {{"a", 0, {}}})) == "axis a has size 0");
  REQUIRE(problem(make_type(DType::kF32, {{"a", int64_t{1} << 40, {}}, {"b", 16, {}}})) == "none");
  REQUIRE(problem(make_type(DType::kF32, {{"a", int64_t{1} << 40, {}}, {"b", 17, {}}})) ==
          "f32[\"a=1099511627776 b=17\"] has more than 17592186044416 elements, the most that a "
          "tensor may have");
  REQUIRE(problem(make_type(DType::kF32, {{"a", INT64_MAX, {}}, {"b", INT64_MAX, {}}})) ==
          "f32[\"a=9223372036854775807 b=9223372036854775807\"] has more than 17592186044416 "
          "elements, the most that a tensor may have");
  Type partial = parse_type("f32[\"a/mdl=8\"]");
  partial.partial = {PartialKind::kSum, {"mdl"}};
  REQUIRE(problem(partial) == "f32[\"a/mdl\" + sum(mdl)] uses mdl for both a and a partial");
  partial = parse_type("f32[\"a=8\" + sum(mdl, data)]");
  REQUIRE(problem(partial) == "the partial of f32[\"a\" + sum(mdl, data)] is not in mesh order");
}

TEST_CASE("The local type has the sizes divided by all splits") {
  const Mesh mesh = Mesh::standard({1, 2, 4});
  const Type type = parse_type("f32[\"a/mdl/data=16 b=3\" + sum(replica)]");
  REQUIRE(local_type(type, mesh).text_sized() == "f32[\"a=2 b=3\"]");
}

TEST_CASE("A mesh has named axes with a fast and a slow size") {
  const Mesh mesh = Mesh::standard({1, 2, 4}, {2, 1, 1});
  REQUIRE(mesh.text() == "replica=2 data=2 mdl=4");
  REQUIRE(mesh.num_devices() == 16);
  REQUIRE(mesh.position("mdl") == 2);
  REQUIRE(Mesh().num_devices() == 1);
  REQUIRE(error_of([&] { mesh.size("model"); }) ==
          "the mesh (replica=2 data=2 mdl=4) has no axis 'model'; did you mean 'mdl'?");
  REQUIRE(error_of([] { Mesh({{"a", 2}, {"a", 2}}); }) == "mesh: axis 'a' is named twice");
  REQUIRE(error_of([] {
            Mesh({{"a", 0}});
          }) == "mesh: axis 'a' has size 0 (ICI) x 1 (DCN); both must be at least 1");
  REQUIRE(
      error_of([] {
        Mesh({{"a", 4294967296, 4294967296}, {"b", 2}});
      }) ==
      "mesh: more than 16777216 devices; axis 'a' has size 4294967296 (ICI) x 4294967296 (DCN)");
  REQUIRE(Mesh({{"a", 4096}, {"b", 4096}}).num_devices() == kMaxDevices);
  REQUIRE(error_of([] {
            Mesh({{"a", 4096}, {"b", 4096}, {"c", 1, 2}});
          }) == "mesh: more than 16777216 devices; axis 'c' has size 1 (ICI) x 2 (DCN)");
  REQUIRE(error_of([] {
            Mesh::standard({1, 2});
          }) == "ici_mesh_shape has 2 sizes, expected 3 (replica, data, mdl)");
}

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
