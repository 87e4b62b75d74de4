// SPDX-License-Identifier: Apache-2.0
// Tests how layers are divided among stages, and the shards of stacked weights that result.
#include "core/graph/layer_pieces.h"

#include <numeric>

#include "core/graph/type.h"
#include "tests/support/catch.h"
#include "tests/support/trial.h"

namespace tessera {
namespace {

using Stages = std::vector<int64_t>;

Mesh divided(int64_t stages, std::vector<int64_t> layers_of_pieces, int64_t mdl = 1) {
  Mesh mesh({{"stage", stages}, {"mdl", mdl}});
  mesh.divide_layers(std::move(layers_of_pieces));
  return mesh;
}

TEST_CASE("pieces lie in the order of the model in the stack, and of chunks on their stage") {
  const LayerPieces pieces({3, 2, 1, 4}, 2);
  REQUIRE(pieces.chunks() == 2);
  REQUIRE(pieces.layers() == 10);
  REQUIRE(pieces.first_layer(2) == 5);
  REQUIRE(pieces.first_row(2) == 3);  // After piece 0 on stage 0.
  REQUIRE(pieces.first_row(3) == 2);  // After piece 1 on stage 1.
  REQUIRE(pieces.layers_of_stage(0) == 4);
  REQUIRE(pieces.rows() == 6);
  REQUIRE(pieces.piece(1, 1) == 3);
  REQUIRE(!pieces.is_equal_blocks());
  REQUIRE(LayerPieces::equal(8, 2) == LayerPieces({4, 4}, 2));
  REQUIRE(LayerPieces::equal(8, 2).is_equal_blocks());
  REQUIRE(!LayerPieces::equal(8, 2, 2).is_equal_blocks());
}

TEST_CASE("pieces that no pipeline has are errors") {
  REQUIRE(error_of([] {
            LayerPieces({3, 2, 1}, 2);
          }) == "layers are divided into 3 pieces (3 2 1); expected a multiple of the 2 stages");
  REQUIRE(error_of([] {
            LayerPieces({3, 0}, 2);
          }) == "piece 1 of 2 (3 0) has 0 layers; expected at least 1");
  REQUIRE(error_of([] { LayerPieces::equal(6, 2, 2); }) ==
          "6 layers cannot be divided into 4 equal pieces (2 stages with 2 each)");
  REQUIRE_THAT(error_of([] {
                 Mesh({{"data", 2}}).divide_layers({1, 1});
               }),
               Catch::Contains("has no axis 'stage'"));
}

TEST_CASE("a mesh knows the pieces of a stack, declared or equal") {
  REQUIRE(Mesh({{"stage", 2}}).layer_pieces_of(6) == LayerPieces({3, 3}, 2));
  REQUIRE(Mesh({{"data", 2}}).layer_pieces_of(6) == LayerPieces({6}, 1));
  REQUIRE(divided(2, {4, 2}).layer_pieces_of(6) == LayerPieces({4, 2}, 2));
  REQUIRE(error_of([] {
            divided(2, {4, 2}).layer_pieces_of(5);
          }) == "a stack has 5 layers, but its pieces on the stages (4 2) have 6");
}

TEST_CASE("layers over stage must be those of the pieces") {
  const Type type = parse_type("f32[\"layers/stage=5 embed/mdl=4\"]");
  REQUIRE(type_problem(type, divided(2, {3, 2}, 2)) == std::nullopt);
  REQUIRE(type_problem(type, divided(2, {3, 3}, 2)) ==
          "layers=5 cannot be split over stage into pieces of 3 3 layers, which are 6; give the "
          "pieces as many layers as the stack has");
  REQUIRE(type_problem(type, Mesh({{"stage", 2}, {"mdl", 2}})) ==
          "layers=5 cannot be split by stage=2; the nearest size that can is 6");
  REQUIRE(type_problem(parse_type("f32[\"layers/stage/mdl=5\"]"), divided(2, {3, 2}, 2)) ==
          "layers/stage/mdl is divided into pieces of 3 2 layers, so it can be split over stage "
          "only");
  // Only the axis `layers` is in pieces.
  REQUIRE(type_problem(parse_type("f32[\"batch/stage=5\"]"), divided(2, {3, 2})) ==
          "batch=5 cannot be split by stage=2; the nearest size that can is 6");
  REQUIRE(type_problem(parse_type("f32[\"layers=7\"]"), divided(2, {3, 2})) == std::nullopt);
}

TEST_CASE("a device holds a block of a stack for each chunk of its stage") {
  const Mesh mesh = divided(2, {3, 2, 1, 4}, 2);
  const Type type = parse_type("f32[\"layers/stage=10 embed/mdl=4\"]");
  REQUIRE(local_type(type, mesh).text_sized() == "f32[\"layers=6 embed=2\"]");
  using Blocks = std::vector<ShardBlock>;
  // Device 1 is stage 0, mdl 1; device 2 is stage 1, mdl 0.
  REQUIRE(shard_blocks(type, mesh, 1) ==
          Blocks{{{{0, 2}, {3, 2}}, {0, 0}}, {{{5, 2}, {1, 2}}, {3, 0}}});
  REQUIRE(shard_blocks(type, mesh, 2) ==
          Blocks{{{{3, 0}, {2, 2}}, {0, 0}}, {{{6, 0}, {4, 2}}, {2, 0}}});
  REQUIRE(rows_of(type, mesh, 0, 2) == std::vector<RowRange>{{0, 3}, {5, 6}});
  REQUIRE(rows_of(type, mesh, 0, 4) == std::vector<RowRange>{{0, 10}});
}

TEST_CASE("blocks of all devices are the whole stack, each element once, without padding") {
  for (const std::vector<int64_t>& layers :
       {std::vector<int64_t>{3, 2}, {2, 3}, {1, 1, 1, 1}, {1, 4, 2, 1}, {5, 5}}) {
    const int64_t total = std::accumulate(layers.begin(), layers.end(), int64_t{0});
    const Mesh mesh = divided(2, layers, 2);
    const Type type = make_type(DType::kF32, {{"layers", total, {"stage"}}, {"embed", 6, {"mdl"}}});
    const Type local = local_type(type, mesh);
    std::vector<Region> regions;
    int64_t elements = 0;
    for (int64_t device = 0; device < 4; ++device) {
      std::vector<Region> in_part;
      for (const ShardBlock& block : shard_blocks(type, mesh, device)) {
        regions.push_back(block.global);
        in_part.push_back(block.local());
        elements += block.global.elements();
        REQUIRE(Region::whole({local.axes[0].size, local.axes[1].size}).contains(block.local()));
      }
      REQUIRE(are_disjoint(in_part));
      REQUIRE(owns_block(type, mesh, device));
    }
    REQUIRE(are_disjoint(regions));
    REQUIRE(elements == type.elements());
  }
}

TEST_CASE("equal pieces, one for each stage, are the blocks of an axis that is not in pieces") {
  const Mesh mesh = divided(2, {2, 2}, 2), plain({{"stage", 2}, {"mdl", 2}});
  const Type type = parse_type("f32[\"layers/stage=4 embed/mdl=4\"]");
  REQUIRE(local_type(type, mesh) == local_type(type, plain));
  for (int64_t device = 0; device < 4; ++device) {
    REQUIRE(shard_blocks(type, mesh, device) == shard_blocks(type, plain, device));
  }
}

TEST_CASE("the owner of a block is the first device of a stage that holds the array") {
  const Mesh mesh({{"data", 2}, {"stage", 3}});
  const auto owners = [&](const char* type, const Stages& stages) {
    std::vector<int64_t> owners;
    for (int64_t device = 0; device < 6; ++device)
      if (owns_block(parse_type(type), mesh, device, stages)) owners.push_back(device);
    return owners;
  };
  REQUIRE(owners("f32[\"vocab=4\"]", {}) == Stages{0});
  REQUIRE(owners("f32[\"vocab=4\"]", {2}) == Stages{2});
  REQUIRE(owners("f32[\"vocab=4\"]", {1, 2}) == Stages{1});
  REQUIRE(owners("f32[\"vocab/data=4\"]", {1, 2}) == Stages{1, 4});
  REQUIRE(owners("f32[\"layers/stage=3\"]", {}) == Stages{0, 1, 2});
}

}  // namespace
}  // namespace tessera
