// SPDX-License-Identifier: Apache-2.0
// The pipeline schedules of the literature. S is the number of stages, M of microbatches and R of
// chunks per stage. A tick is one task of one chunk, and all stages are idle for equally many of
// them. Each table of a training step passes check_pipeline and declares live_bound, which it
// reaches. All throw Error for sizes below 1 and for those that the schedule cannot have.
#pragma once

#include <cstdint>

#include "core/schedules/table.h"

namespace tessera {

// GPipe (Huang et al., 2019, arXiv 1811.06965): all forwards, then all backwards, the last
// microbatch first. Forward and backward pass take M+S-1 ticks each, and each stage is idle for
// 2(S-1). Every stage holds M activations.
PipelineTable gpipe_table(int64_t stages, int64_t microbatches);

// 1F1B (PipeDream-Flush: Narayanan et al., 2021, arXiv 2006.09503): a stage alternates between one
// forward and one backward as soon as it can. As many ticks as GPipe; stage s holds only min(S-s,
// M) activations.
PipelineTable one_forward_one_backward_table(int64_t stages, int64_t microbatches);

// Interleaved 1F1B (Megatron-LM: Narayanan et al., 2021, arXiv 2104.04473): R chunks per stage,
// each of 1/R of the layers, and S microbatches at a time go through all chunks. 2(M·R+S-1) ticks;
// each stage is idle for 2(S-1) of them, which are R times shorter. Stage s holds
// min(2(S-1-s)+(R-1)S+1, M·R) activations of one chunk. Error unless R >= 2 and S divides M.
PipelineTable interleaved_table(int64_t stages, int64_t microbatches, int64_t chunks);

// Circular (Pax: CircularLayerwiseShardablePipelined of praxis): all microbatches go through chunk
// 0 of every stage, then through chunk 1, …, then backwards in the reverse order. Forward and
// backward pass take M·R+S-1 ticks each, and each stage is idle for 2(S-1). Every stage holds M·R
// activations of one chunk. Error if R > 1 and M < S: a microbatch would be back at stage 0 only
// after its turn.
PipelineTable circular_table(int64_t stages, int64_t microbatches, int64_t chunks);

// ZB-H1 (Qi et al., 2024, arXiv 2401.10241): 1F1B with the backward in two tasks, I and W, so that
// the previous stage waits for I only. Stage s delays its W by s microbatches: it then holds S
// activations, as stage 0 of 1F1B. If F, I and W take one tick each, there are 3M+max(S-1, 2S-1-M)
// ticks, and for M >= S each stage is idle for S-1 of them, a third of 1F1B's 3(S-1), whose
// backward takes two ticks. Every stage holds min(S, M) activations.
PipelineTable zero_bubble_h1_table(int64_t stages, int64_t microbatches);

// Only the forwards, for evaluation: it has no task of a backward, so it does not pass
// check_pipeline, and declares no live_bound. At most S microbatches at a time go through all
// chunks, in the same order at every stage. M·R+S-1 ticks if R = 1 or S divides M.
PipelineTable forward_table(int64_t stages, int64_t microbatches, int64_t chunks);

}  // namespace tessera
