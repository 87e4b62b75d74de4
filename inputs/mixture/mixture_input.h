// SPDX-License-Identifier: Apache-2.0
// A weighted mixture of sources, with weights that may change at given steps. Each row comes from
// one source, in that source's order; the batch array `source` says which. The rows of sources are
// numbered (flat tokens, streams, synthetic inputs, mixtures), so those of a mixture are too. Every
// host reads all rows of a stream.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/hparams/fields.h"
#include "core/hparams/template.h"
#include "inputs/indexed_input.h"
#include "inputs/mixture/mixture_schedule.h"

namespace tessera {

// The effect of the end of a source that does not repeat.
enum class Exhausted {
  kRestart,  // The source repeats.
  kStop,     // The source leaves the mixture; the others share its rows by weight. The stream ends
             // when all sources with a weight are exhausted.
  kRaise,    // Error at the batch of the missing row.
};

// How rows follow each other.
enum class MixtureOrder {
  kBlocks,  // In random order within blocks that hold exact numbers of rows of each source.
  kGreedy,  // As Megatron-core's BlendedDataset, with the sources in the order of their names.
};

// Weights from `step` on.
struct MixtureStage {
  int64_t step = 0;
  std::map<std::string, double> weights;
  FIELDS(About(step, {.min = 1, .max = 1e10}), About(weights, kNotNegative))
};

class MixtureInput final : public IndexedInput {
 public:
  struct HParams {
    using Instance = MixtureInput;
    std::string name = "mixture";
    // By name. Unset fields of a source inherit the mixture's fields of the same name.
    std::map<std::string, Template<BaseInput>> sources;
    // Weights from step 0 on, by source; need not sum to 1; 0 excludes a source.
    std::map<std::string, double> weights;
    std::vector<MixtureStage> stages;  // Weights from later steps on; each step must begin a block.
    Exhausted exhausted = Exhausted::kRestart;
    MixtureOrder order = MixtureOrder::kBlocks;
    int64_t block_size = 2048;  // In rows; the weights are exact in every block.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    int64_t num_batches = -1;  // End after this many; -1: no limit.
    Field<int64_t> seed;       // Seed of the order within blocks.
    FIELDS(name, sources, About(weights, kNotNegative), stages, exhausted, order,
           About(block_size, "rows; the order of a block is computed as a whole",
                 {.min = 1, .max = 65536}),
           About(global_batch_size, kSize), About(seq_len, kSize),
           About(num_batches, "batches until the end; -1: no limit", {.min = 1, .also = -1}), seed)
  };
  explicit MixtureInput(const HParams& p);

  int64_t vocab_size() const override { return sources_.at(0)->vocab_size(); }
  const Tokenizer* tokenizer() const override { return sources_.at(0)->tokenizer(); }
  bool documents_begin_with_start_id() const override {
    return sources_.at(0)->documents_begin_with_start_id();
  }
  std::string ids_fingerprint() const override { return sources_.at(0)->ids_fingerprint(); }
  std::vector<std::string> sources() const override { return names_; }
  std::optional<Batch> peek() override;
  void reset() override;
  std::optional<int64_t> num_examples() const override;
  void release(int64_t examples) override;
  std::map<std::string, std::string> cursors_at(int64_t examples) const override;
  std::map<std::string, std::string> contents() const override;
  // With other weights than those that gave the rows read, every source continues where it was, and
  // the order restarts from here.
  void resume(const std::map<std::string, std::string>& cursors, int64_t examples) override;

 private:
  // The first row that an exhausted source cannot give.
  struct End {
    int64_t row = 0;
    size_t source = 0;
  };
  // A place in the mixture: the rows of the mixture before it, and of each source.
  struct Place {
    int64_t row = 0;
    std::vector<int64_t> given;
  };
  void make_sources();
  void check_order() const;
  void make_stages();
  std::vector<double> checked_weights(const std::map<std::string, double>& weights,
                                      const std::string& where) const;
  void check_counts(const std::vector<double>& weights, const std::string& where) const;
  int64_t first_block_of(int64_t step, const std::string& where) const;
  void open(const Infeed& infeed) override;
  void check_agreement() const;
  // The weights begin at `origin`, which `base` follows.
  void begin_schedule(const Place& origin, const Place& base);
  void end_sources(std::vector<WeightStage> stages);
  std::string weights_text() const;
  Place start() const { return {0, std::vector<int64_t>(sources_.size())}; }
  [[noreturn]] void fail_exhausted() const;
  const std::vector<MixtureSchedule::Pick>& block(int64_t index) const;
  std::vector<int64_t> given(int64_t examples) const;
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  HParams p_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<IndexedInput>> sources_;
  std::vector<WeightStage> weight_stages_;
  Place origin_, base_;                      // Where the weights begin, and block 0 of schedule_.
  std::optional<MixtureSchedule> schedule_;  // After `attach`.
  std::optional<End> end_;                   // For Exhausted::kRaise.
  // The last block used: rows are requested in order.
  mutable int64_t block_index_ = -1;
  mutable std::vector<MixtureSchedule::Pick> block_;
};

extern template class HolderOf<BaseInput, MixtureInput::HParams>;

}  // namespace tessera
