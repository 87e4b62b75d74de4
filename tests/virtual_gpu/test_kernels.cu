// SPDX-License-Identifier: Apache-2.0
// Kernels for the tests of the virtual GPU: correct ones, and the same with planted faults. A
// comment "fault: NAME" marks the line that a fault must name.
#include <cuda_bf16.h>

#include <cassert>
#include <cstdint>

#define KERNEL extern "C" __global__ void

namespace {

// The sum of a block of 128 threads.
template <bool Barrier>
__device__ float block_sum(float x) {
  __shared__ float partial[4];
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  if (Barrier) __syncthreads();
  float sum = 0;
  for (int w = 0; w < 4; ++w) sum += partial[w];  // fault: no_barrier
  return sum;
}

template <bool Barrier>
__device__ void sum_rows(const float* x, float* y, int columns) {
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  sum = block_sum<Barrier>(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// Matrix products: C[rows, columns] = A[rows, depth] B[columns, depth]^T for multiples of 32. A
// block of 4 warps computes 32 x 32; each warp 16 x 16.
constexpr int kTile = 32, kDepth = 32, kPitch = kDepth + 8;
using Tile = __nv_bfloat16[kTile][kPitch];

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void fetch(Tile& tile, const __nv_bfloat16* from, int depth) {
  const int row = threadIdx.x / 4, column = threadIdx.x % 4 * 8;
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[row][column])),
      "l"(from + row * depth + column));
}

__device__ void load_matrices(uint32_t (&r)[4], const __nv_bfloat16* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(at)));  // fault: wait
}

template <bool Swapped>
__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[Swapped ? 2 : 1]), "r"(a[Swapped ? 1 : 2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int Pending, bool Swapped, bool LastBarrier>
__device__ void matrix_product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                               int columns, int depth) {
  __shared__ alignas(16) Tile tiles_a[2], tiles_b[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * 16, warp_column = warp % 2 * 16;
  a += blockIdx.y * kTile * depth;
  b += blockIdx.x * kTile * depth;
  float sums[2][4] = {};
  const auto start = [&](int step) {
    if (step * kDepth < depth) {
      fetch(tiles_a[step % 2], a + step * kDepth, depth);
      fetch(tiles_b[step % 2], b + step * kDepth, depth);
    }
    asm volatile("cp.async.commit_group;");
  };
  start(0);
  for (int step = 0; step * kDepth < depth; ++step) {
    start(step + 1);
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
    __syncthreads();
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t fa[4], fb[4];
      load_matrices(fa, &tiles_a[step % 2][warp_row + lane % 16][k + lane / 16 * 8]);
      load_matrices(fb, &tiles_b[step % 2][warp_column + lane % 16][k + lane / 16 * 8]);
      multiply<Swapped>(sums[0], fa, fb[0], fb[2]);
      multiply<Swapped>(sums[1], fa, fb[1], fb[3]);
    }
    if (LastBarrier) __syncthreads();
  }
  c += (blockIdx.y * kTile + warp_row) * columns + blockIdx.x * kTile + warp_column;
  for (int n = 0; n < 2; ++n)
    for (int r = 0; r < 4; ++r)
      c[(lane / 4 + r / 2 * 8) * columns + n * 8 + lane % 4 * 2 + r % 2] = sums[n][r];
}

}  // namespace

KERNEL row_sum(const float* x, float* y, int columns) { sum_rows<true>(x, y, columns); }
KERNEL row_sum_no_barrier(const float* x, float* y, int columns) { sum_rows<false>(x, y, columns); }

KERNEL matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int columns, int depth) {
  matrix_product<1, false, true>(a, b, c, columns, depth);
}
KERNEL matmul_late_wait(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int columns,
                        int depth) {
  matrix_product<2, false, true>(a, b, c, columns, depth);
}
KERNEL matmul_swapped(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int columns,
                      int depth) {
  matrix_product<1, true, true>(a, b, c, columns, depth);
}
KERNEL matmul_no_last_barrier(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int columns,
                              int depth) {
  matrix_product<1, false, false>(a, b, c, columns, depth);
}

// A histogram of bytes: atomics in shared, then in global memory.
KERNEL histogram(const uint8_t* x, uint32_t* counts, int n) {
  __shared__ uint32_t own[256];
  for (int k = threadIdx.x; k < 256; k += blockDim.x) own[k] = 0;
  __syncthreads();
  for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
    atomicAdd(&own[x[k]], 1u);
  __syncthreads();
  for (int k = threadIdx.x; k < 256; k += blockDim.x) atomicAdd(&counts[k], own[k]);
}

// Divergent control flow, a switch, an array in local memory and a call.
__device__ __noinline__ int collatz(int x) {
  int steps = 0;
  for (; x != 1; ++steps) x = x % 2 ? 3 * x + 1 : x / 2;
  return steps;
}
__constant__ int kFactors[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ int device_count = 7;
KERNEL control(const int* x, int* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int digits[16];
  for (int k = 0; k < 16; ++k) digits[k] = x[i] * (k + 1);
  int value = digits[x[i] % 16] + kFactors[x[i] % 8] + device_count;
  switch (x[i] % 7) {
    case 0:
      value += 100;
      break;
    case 1:
      value *= 3;
      break;
    case 2:
      value ^= 0x55;
      break;
    case 3:
      value -= 41;
      break;
    case 4:
      value = ~value;
      break;
    case 5:
      value = value << 2;
      break;
    default:
      value = -value;
  }
  y[i] = value + collatz(x[i] + 1);
}

KERNEL transcendental(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  y[8 * i] = expf(v), y[8 * i + 1] = logf(fabsf(v)), y[8 * i + 2] = tanhf(v);
  y[8 * i + 3] = erff(v), y[8 * i + 4] = sinf(v), y[8 * i + 5] = cosf(v);
  y[8 * i + 6] = powf(fabsf(v), 1.7f), y[8 * i + 7] = log1pf(fabsf(v));
}

// Votes: threads of the block with a positive value, and whether all and any have one.
KERNEL votes(const int* x, int* y) {
  const int positive = x[threadIdx.x] > 0;
  const int count = __syncthreads_count(positive);
  const int all = __syncthreads_and(positive), any = __syncthreads_or(positive);
  const uint32_t ballot = __ballot_sync(0xffffffff, positive);
  const uint32_t same = __match_any_sync(0xffffffff, x[threadIdx.x]);
  const int sum = __reduce_add_sync(0xffffffff, x[threadIdx.x]);
  int* const out = y + 6 * threadIdx.x;
  out[0] = count, out[1] = all != 0, out[2] = any != 0;
  out[3] = ballot, out[4] = same, out[5] = sum;
}

// The last block to arrive adds what each block has written (CUDA programming guide, "Memory fence
// functions"), with or without its fences.
template <bool kRelease, bool kAcquire>
__device__ void add_parts(float* parts, unsigned* arrived, float* total) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x + 1;
    if (kRelease) __threadfence();
    last = atomicAdd(arrived, 1) == gridDim.x - 1;
    if (kAcquire) __threadfence();
  }
  __syncthreads();
  if (last && threadIdx.x == blockDim.x - 1) {
    float sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += parts[i];  // fault: add_parts
    *total = sum;
  }
}
KERNEL last_block(float* parts, unsigned* arrived, float* total) {
  add_parts<true, true>(parts, arrived, total);
}
KERNEL last_block_no_release(float* parts, unsigned* arrived, float* total) {
  add_parts<false, true>(parts, arrived, total);
}
KERNEL last_block_no_acquire(float* parts, unsigned* arrived, float* total) {
  add_parts<true, false>(parts, arrived, total);
}
// Each block waits for the block after it, which may begin later.
KERNEL wait_for_next(volatile int* flags, int* values) {
  if (blockIdx.x + 1 < gridDim.x) {
    while (flags[blockIdx.x + 1] == 0) {
    }
    __threadfence();
  }
  values[blockIdx.x] = blockIdx.x + 1 < gridDim.x ? values[blockIdx.x + 1] + 1 : 1;
  __threadfence();
  flags[blockIdx.x] = 1;
}

// Faults.
KERNEL copy_floats(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];  // fault: copy
}
KERNEL misaligned(const float* x, float* y) {
  const float4 v = *reinterpret_cast<const float4*>(x + threadIdx.x);  // fault: misaligned
  y[threadIdx.x] = v.x + v.y + v.z + v.w;
}
KERNEL block_race(float* y) {
  if (threadIdx.x == 0) y[0] = blockIdx.x;  // fault: block_race
}
KERNEL thread_race(float* y) {
  y[threadIdx.x / 2] = 1;  // fault: thread_race
}
KERNEL neighbour(float* y) {
  __shared__ float values[64];
  values[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x ^ 1];
  values[threadIdx.x] = 0;  // fault: overwrite
  __syncthreads();
}
KERNEL divergent_barrier(float* y) {
  if (threadIdx.x % 2) {
    y[threadIdx.x] = 1;
    __syncthreads();  // fault: divergent_barrier
  }
}
KERNEL missing_warp(float* y) {
  if (threadIdx.x < 32) __syncthreads();  // fault: missing_warp
  y[threadIdx.x] = 1;
}
KERNEL missing_lanes(float* y) {
  float x = threadIdx.x;
  if (threadIdx.x < 7) x += __shfl_xor_sync(0xffffffff, x, 1);  // fault: missing_lanes
  y[threadIdx.x] = x;
}
KERNEL uninitialised_shared(float* y) {
  __shared__ float values[64];
  if (threadIdx.x < 63) values[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x];  // fault: uninitialised_shared
}
KERNEL beyond_shared(float* y, int k) {
  extern __shared__ float values[];
  values[threadIdx.x + k] = 1;  // fault: beyond_shared
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x + k];
}
KERNEL endless(volatile int* flag) {
  while (*flag == 0) {  // fault: endless
  }
}
KERNEL asserting(int x) {
  assert(x != 3);  // fault: assert
}
KERNEL failing(int x) {
  if (x == 3) __trap();  // fault: trap
}
