// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcudnn. It runs a graph operation by operation on the host, by cuDNN's
// documentation, and refuses descriptors that are inconsistent.
#pragma once

#include <cstdint>

extern "C" {

struct FakeCudnnCounts {
  int64_t plans, runs, refused;
};
// Returns the counts since the last call.
FakeCudnnCounts fake_cudnn_counts();
// no_handle: cudnnCreate refuses the GPU; no_plans: no graph is supported; wrong_results: the last
// operation of a graph is left out; nondeterministic: the library says that its kernels are not
// deterministic; is_slow: a graph takes at least 0.1 s.
struct FakeCudnnBehaviour {
  int64_t version = 91900;
  bool no_handle = false, no_plans = false, wrong_results = false, nondeterministic = false;
  bool is_slow = false;
};
void fake_cudnn_set(const FakeCudnnBehaviour* behaviour);

}  // extern "C"
