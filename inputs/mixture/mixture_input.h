// SPDX-License-Identifier: Apache-2.0
// A weighted mixture of sources, with weights that may change at given steps. Each row comes from
// one source, in that source's order; the batch array `source` says which. Sources must have random
// access (flat tokens, synthetic inputs, mixtures), so that a mixture has it too.
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
    int64_t block_size = 2048;  // In rows; the weights are exact in every block.
    Required<int64_t> global_batch_size;
    Required<int64_t> seq_len;
    int64_t num_batches = -1;  // End after this many; -1: no limit.
    Field<int64_t> seed;       // Seed of the order within blocks.
    FIELDS(name, sources, About(weights, kNotNegative), stages, exhausted,
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
  std::optional<int64_t> num_examples() const override;
  std::map<std::string, std::string> cursors_at(int64_t examples) const override;
  std::map<std::string, std::string> contents() const override;
  void check_cursors(const std::map<std::string, std::string>& cursors,
                     int64_t examples) const override;

 private:
  // The first row that an exhausted source cannot give.
  struct End {
    int64_t row = 0;
    size_t source = 0;
  };
  void make_sources();
  MixtureSchedule make_schedule();
  std::vector<double> checked_weights(const std::map<std::string, double>& weights,
                                      const std::string& where) const;
  std::vector<int64_t> block_counts(const std::vector<double>& weights,
                                    const std::string& where) const;
  int64_t first_block_of(int64_t step, const std::string& where) const;
  void open(const Infeed& infeed) override;
  void check_agreement() const;
  void end_sources();
  [[noreturn]] void fail_exhausted() const;
  const std::vector<MixtureSchedule::Pick>& block(int64_t index) const;
  std::vector<int64_t> given(int64_t examples) const;
  void fill_example(int64_t epoch, int64_t index, const TokenRow& row) const override;

  HParams p_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<IndexedInput>> sources_;
  std::vector<WeightStage> weight_stages_;
  MixtureSchedule schedule_;
  std::optional<End> end_;  // For Exhausted::kRaise.
  // The last block used: rows are requested in order.
  mutable int64_t block_index_ = -1;
  mutable std::vector<MixtureSchedule::Pick> block_;
};

extern template class HolderOf<BaseInput, MixtureInput::HParams>;

}  // namespace tessera
