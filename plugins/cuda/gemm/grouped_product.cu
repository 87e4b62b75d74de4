// SPDX-License-Identifier: Apache-2.0
// Products of rows with the matrices that ids choose (core/ops/grouped_product.h), in the way of
// "grouped GEMM" (MegaBlocks, Gale et al., 2022) without copies of rows:
//
//   1. The ids are sorted by group, stably (scatter_add_count, scatter_add_place).
//   2. grouped_rows finds where each group begins, and for each place of the order the row of the
//      operands, which may lack axes of the ids.
//   3. grouped_product_…: a block multiplies up to 32, 64 or 128 rows of one group by as many
//      columns of its matrix. Rows are gathered into shared memory and results are scattered to
//      their places, 16 bytes at a time. How many tiles a group has is known on the GPU only, so
//      the host launches as many blocks as any ids can need, and a block without rows ends.
//      Ids of no group are one more group, whose results are zeros.
//      grouped_outer_product_…: a block computes a tile of one group's matrix, over all rows of the
//      group in the order of ids; zeros for a group without rows.
//
// The tiles are those of product.cu (product_tile.cuh): bf16 on tensor cores with f32 sums, f32
// with fused multiply-adds. The bits of a row depend on it and its matrix only, and those of an
// outer product on the rows of its group in their order: not on the size of tiles, nor on other
// groups. Nothing is atomic.
#include "plugins/cuda/gemm/grouped_product.h"
#include "plugins/cuda/gemm/product_tile.cuh"
#include "plugins/cuda/kernels/strided.cuh"

namespace tessera::cuda {
namespace {

// -- Order --------------------------------------------------------------------------------------

// The group of the id at a place; `groups` if it is outside.
__device__ int64_t group_at(const GroupedRows& p, int64_t place) {
  const int64_t group = p.selected.ids[p.order[place]] - p.selected.first;
  return group < 0 || group >= p.selected.rows ? p.selected.rows : group;
}

__device__ void find_rows(const GroupedRows& p) {
  for (int64_t place = thread_number(); place <= p.count; place += thread_count()) {
    // The groups that begin here: those after the last place's group, up to this place's.
    const int64_t before = place == 0 ? -1 : group_at(p, place - 1);
    const int64_t here = place == p.count ? p.selected.rows + 1 : group_at(p, place);
    for (int64_t group = before + 1; group <= here; ++group)
      p.begins[group] = static_cast<int32_t>(place);
    if (place == p.count) return;
    uint64_t indices[1] = {static_cast<uint64_t>(p.order[place])};
    int64_t offsets[2][1];
    offsets_in(p.space, indices, offsets);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (p.rows[i] != nullptr) p.rows[i][place] = static_cast<int32_t>(offsets[i][0]);
  }
}

// -- Results ------------------------------------------------------------------------------------

// Stores rows of a tile whose sums lie in shared memory. Staged row r is row row_of(r) of C, whose
// rows have n elements; -1: none.
template <typename Method, typename RowOf>
__device__ void store_rows(typename Method::Element* c, int n, int column, bool aligned,
                           const float* staged, const RowOf& row_of) {
  constexpr int kSize = Method::kSize, kPitch = kSize + kStagePad, kRows = Method::kStagedRows;
  if (aligned) {  // 16 or 32 bytes at a time.
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < kRows * (kSize / 8); chunk += Method::kThreads) {
      const int first = chunk % (kSize / 8) * 8;
      const int64_t row = row_of(chunk / (kSize / 8));
      if (row < 0 || column + first >= n) continue;
      const float* const from = staged + chunk / (kSize / 8) * kPitch + first;
      float low[4], high[4];
      load_vector(from, low);
      load_vector(from + 4, high);
      const float all[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
      store_vector(c + row * n + column + first, all);
    }
    return;
  }
#pragma unroll 1
  for (int e = threadIdx.x; e < kRows * kSize; e += Method::kThreads) {
    const int64_t row = row_of(e / kSize);
    const int at = column + e % kSize;
    if (row < 0 || at >= n) continue;
    c[row * n + at] = from_float<typename Method::Element>(staged[e / kSize * kPitch + e % kSize]);
  }
}

// -- Rows times matrices ------------------------------------------------------------------------

// The group that has this tile of rows: the last that begins at it or before.
__device__ int group_of_tile(const GroupedProduct& p, int64_t tile, int size) {
  int group = 0, end = p.groups + 1;
  while (group + 1 < end) {
    const int middle = (group + end) / 2;
    (first_tile(p.begins[middle], middle, size) <= tile ? group : end) = middle;
  }
  return group;
}

template <typename Method>
__device__ void grouped_product(const GroupedProduct& p) {
  using T = typename Method::Element;
  constexpr int kSize = Method::kSize;
  __shared__ Shared<Method> shared;
  const uint32_t band = kBandTiles * static_cast<uint32_t>((p.n + kSize - 1) / kSize);
  const uint32_t in_band = blockIdx.x % band;
  const int64_t tile = int64_t{blockIdx.x / band} * kBandTiles + in_band % kBandTiles;
  const int column = static_cast<int>(in_band / kBandTiles) * kSize;
  const int group = group_of_tile(p, tile, kSize);
  const int64_t begin =
      p.begins[group] + (tile - first_tile(p.begins[group], group, kSize)) * kSize;
  const int rows = static_cast<int>(min(int64_t{kSize}, p.begins[group + 1] - begin));
  if (rows <= 0) return;  // All threads of the block.
  typename Method::Sums sums = {};
  if (group < p.groups) {
    const GatheredMatrix<T> a = {
        static_cast<const T*>(p.a), p.rows + begin, p.k, rows, p.k, p.a_aligned};
    const Matrix<T> b =
        matrix_of<T>(p.b, int64_t{group} * p.k * p.n, Method::kTransposedB ? p.k : p.n, p.n, p.k,
                     Method::kTransposedB, p.b_aligned);
    sum_tile<Method>(a, b, 0, column, p.k, shared, sums);
  }
  store_tile<Method>(sums, shared.staged, [&](const auto& row_of) {
    store_rows<Method>(static_cast<T*>(p.c), p.n, column, p.c_aligned, shared.staged, [&](int r) {
      const int row = row_of(r);
      return row < rows ? int64_t{p.order[begin + row]} : -1;
    });
  });
}

// -- Sums of outer products ---------------------------------------------------------------------

template <typename Method>
__device__ void grouped_outer_product(const GroupedOuterProduct& p) {
  using T = typename Method::Element;
  constexpr int kSize = Method::kSize;
  __shared__ Shared<Method> shared;
  const int tiles = (p.n + kSize - 1) / kSize;
  const int row = static_cast<int>(blockIdx.x) / tiles * kSize;
  const int column = static_cast<int>(blockIdx.x) % tiles * kSize;
  for (int group = blockIdx.z; group < p.groups; group += gridDim.z) {
    const int begin = p.begins[group], count = p.begins[group + 1] - begin;
    const GatheredMatrix<T> a = {
        static_cast<const T*>(p.a), p.a_rows + begin, p.m, count, p.m, p.a_aligned};
    const GatheredMatrix<T> b = {
        static_cast<const T*>(p.b), p.b_rows + begin, p.n, count, p.n, p.b_aligned};
    typename Method::Sums sums = {};
    sum_tile<Method>(a, b, row, column, count, shared, sums);
    store_tile<Method>(sums, shared.staged, [&](const auto& row_of) {
      store_rows<Method>(static_cast<T*>(p.c) + int64_t{group} * p.m * p.n, p.n, column,
                         p.c_aligned, shared.staged, [&](int r) {
                           const int at = row + row_of(r);
                           return at < p.m ? int64_t{at} : -1;
                         });
    });
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256)
    grouped_rows(const __grid_constant__ GroupedRows p) {
  find_rows(p);
}

// grouped_product_<dtype>_<layout of the matrices: n as they are, t transposed>_<tile>, and
// grouped_outer_product_<dtype>_<tile>.
#define TESSERA_GROUPED(Method, size, a, b, body, function, parameters)      \
  extern "C" __global__ void __launch_bounds__(Method<size, a, b>::kThreads, \
                                               Method<size, a, b>::kBlocks)  \
      function##_##size(const __grid_constant__ parameters p) {              \
    body<Method<size, a, b>>(p);                                             \
  }
#define TESSERA_GROUPED_PRODUCTS(Method, name, size)                                              \
  TESSERA_GROUPED(Method, size, false, false, grouped_product, grouped_product_##name##_n,        \
                  GroupedProduct)                                                                 \
  TESSERA_GROUPED(Method, size, false, true, grouped_product, grouped_product_##name##_t,         \
                  GroupedProduct)                                                                 \
  TESSERA_GROUPED(Method, size, true, false, grouped_outer_product, grouped_outer_product_##name, \
                  GroupedOuterProduct)
TESSERA_GROUPED_PRODUCTS(Bf16Product, bf16, 32)
TESSERA_GROUPED_PRODUCTS(Bf16Product, bf16, 128)
TESSERA_GROUPED_PRODUCTS(F32Product, f32, 32)
TESSERA_GROUPED_PRODUCTS(F32Product, f32, 64)

}  // namespace tessera::cuda
