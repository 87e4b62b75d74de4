// SPDX-License-Identifier: Apache-2.0
// Tensor cores of sm_80 and newer through PTX: copies to shared memory, loads of fragments, and
// products of 16×16 and 16×8 (PTX ISA, "Matrix Fragments for mma.m16n8k16").
//
// Fragments of lane l, with g = l / 4 and t = l % 4; each register holds two neighbours:
//   A (16×16)  a0: (g, 2t)  a1: (g + 8, 2t)  a2: (g, 2t + 8)  a3: (g + 8, 2t + 8), pairs along k
//   B (16×8)   b0: (2t, g)  b1: (2t + 8, g), pairs along k
//   C (16×8)   c0, c1: (g, 2t), (g, 2t + 1)  c2, c3: the same of row g + 8
#pragma once

#include <cstdint>

#include "plugins/cuda/kernels/vector.cuh"

namespace tessera::cuda {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes: the first `valid_bytes` from global memory, the others are zero. Both addresses
// are multiples of 16. Complete after wait_for_copies() and a barrier.
__device__ inline void copy_async(void* shared, const void* global, int valid_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid_bytes)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ inline void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `kPending` groups of this thread are not complete.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8×8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. Lane
// l gets elements (l / 4, 2 (l % 4)) and its right neighbour of each; with kTranspose, of the
// transposed matrix.
template <bool kTranspose>
__device__ inline void load_matrices(const bf16* row, uint32_t (&matrices)[4]) {
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}

// sums += A·B, products of bf16 accumulated in f32.
__device__ inline void multiply_add(const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    float (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace tessera::cuda
