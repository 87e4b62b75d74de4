// SPDX-License-Identifier: Apache-2.0
// The division of the layers of a stack among the stages of a pipeline, and the places of their
// rows in the shards of stacked weights. It has no layers, weights or devices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The axis along which the weights of equal layers are stacked, and the mesh axis that divides it.
inline constexpr std::string_view kLayersAxis = "layers";
inline constexpr std::string_view kStageAxis = "stage";

// The layers are cut into R·S pieces, numbered in the order of the model. Stage s of S holds the R
// pieces s, S+s, 2S+s, …, which are its chunks 0, 1, …, R-1 (as in core/schedules/table.h).
// The rows of its shard of a stacked weight are those of its pieces, in this order. The shards of
// all stages have the same size, that of the stage with the most layers; rows after the layers of
// a stage are padding: zeros, which no array on the host and no checkpoint contains.
class LayerPieces {
 public:
  LayerPieces() = default;  // None: stacks are divided like all axes, into equal parts.
  // Error unless there are R·S pieces, R >= 1, of at least one layer each.
  LayerPieces(std::vector<int64_t> layers_of_pieces, int64_t stages);
  // `chunks` equal pieces on each stage. Error if chunks * stages does not divide the layers.
  static LayerPieces equal(int64_t layers, int64_t stages, int64_t chunks = 1);

  bool empty() const { return layers_.empty(); }
  int64_t stages() const { return stages_; }
  int64_t pieces() const { return std::ssize(layers_); }
  int64_t chunks() const { return empty() ? 0 : pieces() / stages_; }  // Pieces of each stage.
  int64_t piece(int64_t stage, int64_t chunk) const { return chunk * stages_ + stage; }
  int64_t stage_of(int64_t piece) const { return piece % stages_; }

  int64_t layers() const;                    // Layers of all pieces.
  int64_t layers(int64_t piece) const;       // Layers of one piece.
  int64_t first_layer(int64_t piece) const;  // Index in the stack.
  int64_t layers_of_stage(int64_t stage) const;
  // Returns the row at which a piece begins in the shard of its stage.
  int64_t first_row(int64_t piece) const;
  // Returns the rows of every shard, padding included.
  int64_t rows() const;
  // Returns whether every shard is one block of the stack without padding.
  bool is_equal_blocks() const;

  std::string text() const;  // "3 2"
  bool operator==(const LayerPieces&) const = default;

 private:
  std::vector<int64_t> layers_;  // By piece.
  int64_t stages_ = 1;
};

}  // namespace tessera
