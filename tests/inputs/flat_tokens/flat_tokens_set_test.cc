// SPDX-License-Identifier: Apache-2.0
// Sets of several token files, and sets that grow between starts of a run.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "inputs/flat_tokens/flat_tokens_input.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Ints = std::vector<int32_t>;

constexpr int64_t kSeqLen = 4;
constexpr int64_t kBatch = 5;

class Folder {
 public:
  // A file of one document with ascending ids from `first`.
  void add(const std::string& name, int64_t tokens, int32_t first) {
    FlatTokensWriter writer(directory_ / name, *make_tokenizer("bytes"));
    writer.begin_split("train");
    Ints ids;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back((first + static_cast<int32_t>(i)) % 256 + 1);
    writer.add_document(ids);
    writer.finish();
  }
  void remove(const std::string& name) { std::filesystem::remove(directory_ / name); }
  std::filesystem::path path(const std::string& name) const { return directory_ / name; }

  std::unique_ptr<FlatTokensInput> open(Shuffle shuffle, bool repeat = true,
                                        const std::string& pattern = "*.h5") const {
    FlatTokensInput::HParams p;
    p.path = (directory_ / pattern).string();
    p.global_batch_size = kBatch;
    p.seq_len = kSeqLen;
    p.labels = Labels::kShiftRight;
    p.shuffle = shuffle;
    p.era_length = 6;
    p.repeat = repeat;
    auto input = std::make_unique<FlatTokensInput>(p);
    input->attach({});
    return input;
  }

 private:
  TemporaryDirectory directory_;
};

Ints labels_of(const Batch& batch) {
  const HostArray& array = batch.at("labels");
  return {array.data<int32_t>(), array.data<int32_t>() + kBatch * kSeqLen};
}

// The labels of the next `count` batches, or of all left.
std::vector<Ints> take(BaseInput& input, int count) {
  std::vector<Ints> taken;
  for (int i = 0; i < count; ++i)
    if (const auto batch = input.get_next()) taken.push_back(labels_of(*batch));
  return taken;
}

TEST_CASE("files of a pattern are read in name order, and rows do not span files") {
  Folder folder;
  folder.add("b.h5", 10, 100);
  folder.add("a.h5", 7, 0);
  const auto input = folder.open(Shuffle::kNone, false);
  // Rows of 4, 3; 4, 4 and 2.
  REQUIRE(take(*input, 9) == std::vector<Ints>{{1,   2,   3,   4,   5,   6,   7,   0,   101, 102,
                                                103, 104, 105, 106, 107, 108, 109, 110, 0,   0}});
  REQUIRE(folder.open(Shuffle::kNone, true, "a.h5")->state().cursors.contains("data"));
  REQUIRE(input->state().cursors.contains("data/a.h5"));
  REQUIRE(input->state().cursors.contains("data/b.h5"));
}

TEST_CASE("each token of a set is a label once, with era and full shuffling") {
  Folder folder;
  folder.add("a.h5", 41, 0);
  folder.add("b.h5", 3, 41);
  folder.add("c.h5", 90, 44);
  const Shuffle shuffle = GENERATE(Shuffle::kFull, Shuffle::kEra);
  const auto input = folder.open(shuffle, false);
  std::multiset<int32_t> seen;
  for (const Ints& labels : take(*input, 100))
    for (const int32_t label : labels)
      if (label > 0) seen.insert(label);
  REQUIRE(seen.size() == 134);
  REQUIRE(std::set<int32_t>(seen.begin(), seen.end()).size() == 134);
}

TEST_CASE("a run resumes exactly when files are added after those it reads") {
  const Shuffle shuffle = GENERATE(Shuffle::kNone, Shuffle::kEra);
  Folder folder;
  folder.add("a.h5", 100, 0);
  folder.add("b.h5", 60, 100);
  const auto before = folder.open(shuffle);
  // Shifted packed rows: 24 and 14.
  std::vector<InputState> states;
  for (int i = 0; i < 7; ++i) {
    states.push_back(before->state());
    before->get_next();
  }
  before->reset();
  const std::vector<Ints> old = take(*before, 7);
  folder.add("c.h5", 80, 160);
  const auto straight = folder.open(shuffle);
  const std::vector<Ints> grown = take(*straight, 11);  // 57 rows.
  REQUIRE(std::equal(old.begin(), old.end(), grown.begin()));
  for (size_t from = 0; from < states.size(); ++from) {
    const auto resumed = folder.open(shuffle);
    resumed->restore(states[from]);
    REQUIRE(take(*resumed, static_cast<int>(11 - from)) ==
            std::vector<Ints>(grown.begin() + static_cast<int64_t>(from), grown.end()));
  }
}

TEST_CASE("a single file may grow into a set") {
  Folder folder;
  folder.add("a.h5", 100, 0);
  const auto before = folder.open(Shuffle::kEra);
  take(*before, 2);
  folder.add("b.h5", 50, 100);
  const auto after = folder.open(Shuffle::kEra);
  const std::vector<Ints> all = take(*after, 6);
  after->restore(before->state());
  REQUIRE(take(*after, 4) == std::vector<Ints>(all.begin() + 2, all.end()));
}

TEST_CASE("growth that would change the order of a resumed run is refused") {
  Folder folder;
  folder.add("b.h5", 100, 0);
  folder.add("c.h5", 60, 100);
  const auto full = folder.open(Shuffle::kFull);
  const auto era = folder.open(Shuffle::kEra);
  const InputState start = full->state();
  take(*full, 2);
  take(*era, 8);  // 40 rows, of 38.
  folder.add("d.h5", 60, 160);
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kFull)->restore(full->state()),
                      Contains("grown from 2 files to 3") && Contains("shuffle=era"));
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kEra)->restore(era->state()),
                      Contains("after 40 rows were read") && Contains("only 38"));
  REQUIRE_NOTHROW(folder.open(Shuffle::kFull)->restore(start));  // Nothing was read yet.
}

TEST_CASE("files that are missing, changed or inserted are reported by name") {
  Folder folder;
  folder.add("b.h5", 100, 0);
  folder.add("c.h5", 60, 100);
  const auto input = folder.open(Shuffle::kEra);
  take(*input, 1);
  const InputState state = input->state();
  folder.add("a.h5", 60, 160);
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kEra)->restore(state),
                      Contains("a.h5 was added before b.h5"));
  folder.remove("a.h5");
  REQUIRE_NOTHROW(folder.open(Shuffle::kEra)->restore(state));
  folder.remove("b.h5");
  folder.add("d.h5", 60, 160);
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kEra)->restore(state),
                      Contains("started on b.h5, which no longer exists"));
  folder.add("b.h5", 101, 0);
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kEra)->restore(state),
                      Contains("the data of b.h5 differs from the run's"));
}

TEST_CASE("an invalid set is refused with a message") {
  Folder folder;
  folder.add("a.h5", 100, 0);
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kNone, true, "x*.h5"), Contains("no file matches"));
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kNone, true, ""),
                      Contains("is a directory") && Contains("*.h5"));
  FlatTokensWriter writer(folder.path("b.h5"), {"mine", "mine-1", "", 300});
  writer.begin_split("train");
  writer.add_document(Ints{1, 2, 3});
  writer.finish();
  REQUIRE_THROWS_WITH(folder.open(Shuffle::kNone),
                      Contains("a.h5 was made with tokenizer 'bytes'") && Contains("b.h5") &&
                          Contains("'mine' ('mine-1')"));
}

}  // namespace
}  // namespace tessera
