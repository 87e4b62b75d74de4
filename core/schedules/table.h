// SPDX-License-Identifier: Apache-2.0
// A pipeline schedule as data: which stage works on which microbatch at which tick. Here are
// the table, the proof that one is correct (check.cc), and its text form (text.cc); generators.h
// makes tables, timeline.h computes what one costs.
//
// The layers of the model are cut into R·S pieces, numbered in the order of the model. Stage s
// holds the R pieces s, S+s, 2S+s, …, which are its chunks 0, 1, …, R-1 (the virtual stages of
// Narayanan et al., 2021, arXiv 2104.04473). A batch is M microbatches. For piece p and microbatch
// m there are these tasks:
//
//   F(p, m)   forward            needs the activation (p-1, m)      makes the activation (p, m)
//   B(p, m)   backward           needs (p, m), gradient (p+1, m)    makes the gradient (p, m)
//   I(p, m)   backward of input  needs (p, m), gradient (p+1, m)    makes the gradient (p, m)
//   W(p, m)   backward of weight needs the gradient (p, m)          makes nothing that others need
//
// The activation (p, m) is the output of piece p, the gradient (p, m) that of its input. The first
// piece needs no activation of others, and the last one no gradient. B is I and W together. The
// letters are those of torch.distributed.pipelining.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class PipelineWork { kForward, kBackward, kBackwardInput, kBackwardWeight };

// 'F', 'B', 'I' or 'W'.
char work_letter(PipelineWork work);

struct PipelineTask {
  int64_t tick = 0;
  int64_t stage = 0;
  int64_t chunk = 0;  // Chunk of the stage.
  int64_t microbatch = 0;
  PipelineWork work = PipelineWork::kForward;
  auto operator<=>(const PipelineTask&) const = default;
};

struct PipelineTable {
  std::string name;  // For messages and drawings: "1F1B".
  int64_t stages = 0;
  int64_t microbatches = 0;
  int64_t chunks = 1;  // Per stage.
  std::vector<PipelineTask> tasks;
  // Most activations that each stage holds (live_activations); empty: not declared.
  std::vector<int64_t> live_bound;

  int64_t pieces() const { return chunks * stages; }
  int64_t piece(const PipelineTask& task) const { return task.chunk * stages + task.stage; }
  int64_t ticks() const;  // From tick 0 to that of the last task.
};

// A value that one task makes and another one needs.
struct PipelineValue {
  enum class Kind { kActivation, kGradient };
  Kind kind = Kind::kActivation;
  int64_t piece = 0;
  int64_t microbatch = 0;
};

// Return the values that a task needs, and the one that it makes for others, by the rules above.
std::vector<PipelineValue> needed_values(const PipelineTable& table, const PipelineTask& task);
std::optional<PipelineValue> made_value(const PipelineTable& table, const PipelineTask& task);

// Maps values to the tasks that make them. The table's tasks must be in its ranges.
class ValueMakers {
 public:
  static constexpr int64_t kNobody = -1;

  explicit ValueMakers(const PipelineTable& table);
  int64_t maker(const PipelineValue& value) const;  // Returns an index of table.tasks, or kNobody.

 private:
  size_t slot(const PipelineValue& value) const;

  int64_t pieces_;
  int64_t microbatches_;
  std::vector<int64_t> makers_;
};

// Returns, for each stage, the indices of its tasks in the order of their ticks.
std::vector<std::vector<int64_t>> stage_orders(const PipelineTable& table);

// Returns how many activations stage s holds at tick t, at [s][t]: one for each F of the stage,
// from its tick to the tick of the last task that reads it (B, or I and W), both included. The unit
// is the data that one chunk saves for one microbatch.
std::vector<std::vector<int64_t>> live_activations(const PipelineTable& table);

// Returns the maximum over the ticks, for each stage.
std::vector<int64_t> peak_live_activations(const PipelineTable& table);

// Formats "F3", or "F3.1" for chunk 1.
std::string task_text(const PipelineTask& task);

// Error unless
// - the table is complete (check_complete);
// - no stages wait for each other, even if ticks are ignored and each stage only keeps its order:
//   the order of each stage and the needs of its tasks together have no cycle. As sends are
//   asynchronous, the stages then cannot deadlock, however long tasks take;
// - each task is at a later tick than the tasks that make what it needs;
// - each stage holds at most as many activations as the table declares (live_bound).
// The message names the first violation, with stages, ticks and tasks.
void check_pipeline(const PipelineTable& table);

// Error unless
// - all sizes are positive, and all tasks within them;
// - every piece has, for every microbatch, exactly one forward, and either exactly one backward
//   or exactly one backward of input and one of weight;
// - no stage has two tasks at one tick.
void check_complete(const PipelineTable& table);

// Prints a table with at most one task per stage and tick, with aligned columns.
std::string pipeline_text(const PipelineTable& table);

// Parses a table. Lines count the stages; the largest numbers are those of the last microbatch and
// chunk. The schedule is not checked and declares no live_bound. Error for text of
// another form, with the line and the column.
PipelineTable parse_pipeline(std::string_view name, std::string_view text);

}  // namespace tessera
