// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as templates: an experiment chooses one by name, and a plugin adds its own.
// core/compile/stages has the tables, their generators and the checker.
//
//   Template<PipelineSchedule> schedule = InterleavedOneForwardOneBackward::HParams{.chunks = 2};
//   const PipelineTable table = checked_table(schedule, /*stages=*/4, /*microbatches=*/8);
//
// A schedule of a plugin derives from PipelineSchedule, returns a table, and is registered by
// REGISTER_TEMPLATE(PipelineSchedule, Mine).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "core/schedules/generators.h"
#include "core/schedules/table.h"

namespace tessera {

class PipelineSchedule {
 public:
  virtual ~PipelineSchedule() = default;
  // The table for this many stages and microbatches per batch. Error for sizes that the schedule
  // cannot have. Need not check the table.
  virtual PipelineTable table(int64_t stages, int64_t microbatches) const = 0;
};

// The table of the schedule. Error if it is not correct (core/schedules/check.cc), or is for
// other numbers of stages or microbatches.
PipelineTable checked_table(const Template<PipelineSchedule>& schedule, int64_t stages,
                            int64_t microbatches);

// The schedules below are described in core/schedules/generators.h.

template <TemplateName name, PipelineTable (*generate)(int64_t stages, int64_t microbatches)>
class GeneratedPipeline final : public PipelineSchedule {
 public:
  struct HParams {
    using Instance = GeneratedPipeline;
    static constexpr std::string_view kName = name.text;
    FIELDS()
  };
  explicit GeneratedPipeline(const HParams&) {}
  PipelineTable table(int64_t stages, int64_t microbatches) const override {
    return generate(stages, microbatches);
  }
};

template <TemplateName name,
          PipelineTable (*generate)(int64_t stages, int64_t microbatches, int64_t chunks),
          int64_t default_chunks>
class ChunkedPipeline final : public PipelineSchedule {
 public:
  struct HParams {
    using Instance = ChunkedPipeline;
    static constexpr std::string_view kName = name.text;
    int64_t chunks = default_chunks;  // Per stage (Pax: circular_repeat).
    FIELDS(About(chunks, kSize))
  };
  explicit ChunkedPipeline(const HParams& p) : chunks_(p.chunks) {}
  PipelineTable table(int64_t stages, int64_t microbatches) const override {
    return generate(stages, microbatches, chunks_);
  }

 private:
  int64_t chunks_;
};

using GPipe = GeneratedPipeline<"GPipe", gpipe_table>;
using OneForwardOneBackward =
    GeneratedPipeline<"OneForwardOneBackward", one_forward_one_backward_table>;
using InterleavedOneForwardOneBackward =
    ChunkedPipeline<"InterleavedOneForwardOneBackward", interleaved_table, 2>;
using CircularPipeline = ChunkedPipeline<"CircularPipeline", circular_table, 1>;
using ZeroBubbleH1 = GeneratedPipeline<"ZeroBubbleH1", zero_bubble_h1_table>;

// A schedule written by hand (core/schedules/text.cc), for one number of stages and of
// microbatches.
class WrittenPipeline final : public PipelineSchedule {
 public:
  struct HParams {
    using Instance = WrittenPipeline;
    std::vector<std::string> stages;  // One text for each: "F0 F1 . B0 . B1".
    std::vector<int64_t> live_bound;  // Bound of live activations on each stage; empty: none.
    FIELDS(stages, About(live_bound, kSize))
  };
  explicit WrittenPipeline(const HParams& p) : p_(p) {}
  PipelineTable table(int64_t stages, int64_t microbatches) const override;

 private:
  HParams p_;
};

extern template class HolderOf<PipelineSchedule, GPipe::HParams>;
extern template class HolderOf<PipelineSchedule, OneForwardOneBackward::HParams>;
extern template class HolderOf<PipelineSchedule, InterleavedOneForwardOneBackward::HParams>;
extern template class HolderOf<PipelineSchedule, CircularPipeline::HParams>;
extern template class HolderOf<PipelineSchedule, ZeroBubbleH1::HParams>;
extern template class HolderOf<PipelineSchedule, WrittenPipeline::HParams>;

}  // namespace tessera
