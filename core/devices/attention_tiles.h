// SPDX-License-Identifier: Apache-2.0
// The division of work in the attention kernels of GPUs. The kernels (plugins/cuda/attention) and
// their prices (tasks/planner/prices/attention_work.h) must agree on it.
#pragma once

namespace tessera::attention_tiles {

// Returns the tile width of the kernels for heads of `head_dim` elements; 0 if none is wide enough.
constexpr int width_of(int head_dim) {
  for (const int width : {32, 64, 128, 256})
    if (head_dim <= width) return width;
  return 0;
}

// Tiles by bytes of an element (2: bf16 by tensor cores, 4: f32 by ordinary FMAs) and by head width
// (smaller heads are padded with zeros). A block of `warps` warps owns 16 resident rows a warp and
// streams tiles of `streamed` rows of two tensors through shared memory, double-buffered. All fit
// into the 99 KiB that every supported GPU has.
struct TileShape {
  int warps, streamed;
  constexpr int rows() const { return 16 * warps; }
  constexpr int threads() const { return 32 * warps; }
};
constexpr TileShape forward_tiles(int element_bytes, int width) {
  if (element_bytes == 2) return {4, width <= 128 ? 64 : 32};
  return {4, width <= 128 ? 32 : 8};
}
constexpr TileShape gradient_tiles(int element_bytes, int width) {
  if (element_bytes == 2) return {4, width <= 128 ? 32 : 16};
  if (width <= 64) return {4, 32};
  return width <= 128 ? TileShape{4, 16} : TileShape{2, 8};
}
// Rows in shared memory are 16 bytes longer than the head, so that 8 rows of ldmatrix, or of
// 16-byte loads, lie in different banks.
constexpr int tile_bytes(int element_bytes, int width, int rows) {
  return rows * (width * element_bytes + 16);
}
// `resident` is 1 in the forward pass (queries), 2 in the gradients.
constexpr int shared_bytes(int element_bytes, int width, TileShape tiles, int resident) {
  return tile_bytes(element_bytes, width, resident * tiles.rows() + 4 * tiles.streamed);
}
// Columns of dk and dv that a block of the key gradient sums. A head of 256 takes two blocks,
// because the sums of one would not fit into registers.
constexpr int gradient_columns(int width) { return width <= 128 ? width : 128; }

// A lower bound on the blocks that fit into the registers of a multiprocessor, as nvcc compiles the
// kernels (a test compares): forward, gradient of keys and values, gradient of queries.
enum class AttentionKernel { kForward, kKeyGradient, kQueryGradient };
constexpr int blocks_by_registers(AttentionKernel kernel, int element_bytes, int width) {
  if (kernel != AttentionKernel::kKeyGradient) return width <= 64 ? 3 : 2;
  return element_bytes == 2 && width == 32 ? 3 : 2;
}

}  // namespace tessera::attention_tiles
