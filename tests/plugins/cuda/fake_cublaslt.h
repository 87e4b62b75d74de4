// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcublasLt. It computes products on the host from their descriptors, by the
// column-major rules of cuBLAS's documentation, and refuses calls that the library refuses.
// Environment variables:
//   TESSERA_FAKE_CUBLASLT_FAULT=bias      epilogues add a wrong bias
//   TESSERA_FAKE_CUBLASLT_OFFERS=3        the heuristic returns algorithm 3, which rounds
//                                         differently, in place of 0, as if it were faster. "0,3":
//                                         only in process 1 of mpirun. Both algorithms can run.
//   TESSERA_FAKE_CUBLASLT_VERSION=130200  the library's version
#pragma once

#include <cstdint>

extern "C" {

struct FakeCublasLtCounts {
  int64_t heuristics, products, refused;
  int64_t loads;  // Products that were the first with their kernel and loaded it.
};
// Returns the counts since the last call.
FakeCublasLtCounts fake_cublaslt_counts();
// Objects that later calls refuse: handles in cublasLtCreate, epilogues in the heuristic,
// algorithms from a file in cublasLtMatmulAlgoCheck.
struct FakeCublasLtBehaviour {
  int64_t version = 130100;
  bool no_handle = false, no_epilogues = false, no_old_algorithms = false;
};
void fake_cublaslt_set(const FakeCublasLtBehaviour* behaviour);

}  // extern "C"
