// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcublasLt: it computes products on the host from the descriptors that it was
// given, by the column-major rules of cuBLAS's documentation, and refuses what the library refuses.
// With TESSERA_FAKE_CUBLASLT_FAULT=bias in the environment, its epilogues add a wrong bias.
// TESSERA_FAKE_CUBLASLT_OFFERS=3: in place of algorithm 0 the heuristic offers number 3, which
// rounds otherwise, as if the library found that faster; "0,3": in process 1 of mpirun. Both can be
// run. With TESSERA_FAKE_CUBLASLT_VERSION=130200 that is its version.
#pragma once

#include <cstdint>

extern "C" {

struct FakeCublasLtCounts {
  int64_t heuristics, products, refused;
  int64_t loads;  // Products that were the first with their kernel, which a library loads then.
};
// Since the last call.
FakeCublasLtCounts fake_cublaslt_counts();
// What follows is refused: handles by cublasLtCreate, epilogues by the heuristic, algorithms that
// were read from a file by cublasLtMatmulAlgoCheck.
struct FakeCublasLtBehaviour {
  int64_t version = 130100;
  bool no_handle = false, no_epilogues = false, no_old_algorithms = false;
};
void fake_cublaslt_set(const FakeCublasLtBehaviour* behaviour);

}  // extern "C"
