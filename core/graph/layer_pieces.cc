// SPDX-License-Identifier: Apache-2.0
#include "core/graph/layer_pieces.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"

namespace tessera {

LayerPieces::LayerPieces(std::vector<int64_t> layers_of_pieces, int64_t stages)
    : layers_(std::move(layers_of_pieces)), stages_(stages) {
  CHECK(stages_ >= 1, "{} stages", stages_);
  if (layers_.empty() || pieces() % stages_ != 0)
    fail("layers are divided into {} pieces ({}); expected a multiple of the {} stages", pieces(),
         text(), stages_);
  const auto none = std::ranges::find_if(layers_, [](int64_t layers) { return layers < 1; });
  if (none != layers_.end())
    fail("piece {} of {} ({}) has {} layers; expected at least 1", none - layers_.begin(), pieces(),
         text(), *none);
}

LayerPieces LayerPieces::equal(int64_t layers, int64_t stages, int64_t chunks) {
  CHECK(stages >= 1 && chunks >= 1, "{} stages with {} chunks", stages, chunks);
  const int64_t pieces = stages * chunks;
  if (layers < 1 || layers % pieces != 0)
    fail("{} layers cannot be divided into {} equal pieces ({} stages with {} each)", layers,
         pieces, stages, chunks);
  return {std::vector<int64_t>(static_cast<size_t>(pieces), layers / pieces), stages};
}

int64_t LayerPieces::layers() const {
  return std::accumulate(layers_.begin(), layers_.end(), int64_t{0});
}

int64_t LayerPieces::layers(int64_t piece) const {
  CHECK(piece >= 0 && piece < pieces(), "piece {} of {}", piece, pieces());
  return layers_[static_cast<size_t>(piece)];
}

int64_t LayerPieces::first_layer(int64_t piece) const {
  CHECK(piece >= 0 && piece < pieces(), "piece {} of {}", piece, pieces());
  return std::accumulate(layers_.begin(), layers_.begin() + piece, int64_t{0});
}

int64_t LayerPieces::layers_of_stage(int64_t stage) const {
  CHECK(stage >= 0 && stage < stages_, "stage {} of {}", stage, stages_);
  int64_t layers = 0;
  for (int64_t piece = stage; piece < pieces(); piece += stages_) layers += this->layers(piece);
  return layers;
}

int64_t LayerPieces::first_row(int64_t piece) const {
  int64_t row = 0;
  for (int64_t earlier = stage_of(piece); earlier < piece; earlier += stages_)
    row += layers(earlier);
  return row;
}

int64_t LayerPieces::rows() const {
  int64_t rows = 0;
  for (int64_t stage = 0; stage < stages_ && !empty(); ++stage)
    rows = std::max(rows, layers_of_stage(stage));
  return rows;
}

bool LayerPieces::is_equal_blocks() const {
  return chunks() <= 1 &&
         std::ranges::all_of(layers_, [&](int64_t layers) { return layers == layers_.front(); });
}

std::string LayerPieces::text() const { return fmt::format("{}", fmt::join(layers_, " ")); }

}  // namespace tessera
