// SPDX-License-Identifier: Apache-2.0
// Batches from token files: order, epochs, hosts, resume, the end of a finite set.
#include "inputs/flat_tokens/flat_tokens_input.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Ints = std::vector<int32_t>;

// Documents of these lengths; token i overall has the id i % 250 + 1.
class TokenFile {
 public:
  explicit TokenFile(const std::vector<int64_t>& lengths) {
    FlatTokensWriter writer(path(), *make_tokenizer("bytes"));
    writer.begin_split("train");
    int64_t at = 0;
    for (int64_t length : lengths) {
      Ints document;
      for (int64_t i = 0; i < length; ++i) document.push_back(id_at(at++));
      writer.add_document(document);
    }
    writer.finish();
  }
  static int32_t id_at(int64_t token) { return static_cast<int32_t>(token % 250 + 1); }
  std::string path() const { return (directory_ / "tokens.h5").string(); }

 private:
  TemporaryDirectory directory_;
};

struct Settings {
  int64_t batch = 4;
  int64_t seq_len = 8;
  bool packed = true;
  Labels labels = Labels::kNextToken;
  Shuffle shuffle = Shuffle::kFull;
  int64_t era_length = 8;
  bool repeat = true;
  int64_t num_batches = -1;
  int64_t seed = 1;
  int64_t host = 0;
  int64_t hosts = 1;
};

FlatTokensInput::HParams hparams_of(const TokenFile& file, const Settings& settings) {
  FlatTokensInput::HParams p;
  p.path = file.path();
  p.global_batch_size = settings.batch;
  p.seq_len = settings.seq_len;
  p.packed = settings.packed;
  p.labels = settings.labels;
  p.shuffle = settings.shuffle;
  p.era_length = settings.era_length;
  p.repeat = settings.repeat;
  p.num_batches = settings.num_batches;
  p.seed = settings.seed;
  return p;
}

std::unique_ptr<FlatTokensInput> open(const TokenFile& file, const Settings& settings) {
  auto input = std::make_unique<FlatTokensInput>(hparams_of(file, settings));
  input->attach({.infeed_host_index = settings.host, .num_infeed_hosts = settings.hosts});
  return input;
}

bool same(const std::optional<Batch>& a, const std::optional<Batch>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  for (const auto& [name, array] : *a)
    if (array.shape != b->at(name).shape || array.bytes != b->at(name).bytes) return false;
  return a->size() == b->size();
}

Ints ids(const Batch& batch, const char* name = "ids") {
  const HostArray& array = batch.at(name);
  return {array.data<int32_t>(), array.data<int32_t>() + array.shape[0] * array.shape[1]};
}

std::vector<Batch> take_all(BaseInput& input) {
  std::vector<Batch> batches;
  while (auto batch = input.get_next()) batches.push_back(*batch);
  return batches;
}

float total(const std::vector<Batch>& batches, const char* name) {
  float sum = 0;
  for (const Batch& batch : batches) {
    const HostArray& array = batch.at(name);
    const size_t count = array.bytes.size() / sizeof(float);
    for (size_t i = 0; i < count; ++i) sum += array.data<float>()[i];
  }
  return sum;
}

TEST_CASE("unshuffled rows are in order, and the last batch is padded") {
  // 45 tokens are 44 predictions: five rows of 8 and one of 4; two rows of the second batch.
  const TokenFile file({45});
  const auto input = open(file, {.shuffle = Shuffle::kNone, .repeat = false});
  const std::vector<Batch> batches = take_all(*input);
  REQUIRE(batches.size() == 2);
  const Ints first = ids(batches[0]);
  for (int64_t i = 0; i < 32; ++i) REQUIRE(first[static_cast<size_t>(i)] == TokenFile::id_at(i));
  const Ints labels = ids(batches[1], "labels");
  REQUIRE(labels[0] == TokenFile::id_at(33));
  REQUIRE(labels[11] == TokenFile::id_at(44));
  REQUIRE(std::count(labels.begin() + 12, labels.end(), 0) == 20);
  REQUIRE(total(batches, "weights") == 44);
  REQUIRE(total(batches, "paddings") == 64 - 44);
  REQUIRE(total(batches, "eval_sample_weights") == 6);
  // It repeats only after reset.
  REQUIRE_FALSE(input->get_next());
  input->reset();
  REQUIRE(same(input->get_next(), batches[0]));
}

TEST_CASE("a finite set has each token as a label once, in any layout") {
  const int64_t seq_len = GENERATE(1, 3, 8, 64);
  const int64_t batch = GENERATE(1, 5);
  const bool packed = GENERATE(true, false);
  const Labels labels = GENERATE(Labels::kNextToken, Labels::kShiftRight);
  const std::vector<int64_t> lengths = {3, 1, 20, 9, 8, 17, 2};
  const TokenFile file(lengths);
  const auto input = open(file, {.batch = batch,
                                 .seq_len = seq_len,
                                 .packed = packed,
                                 .labels = labels,
                                 .shuffle = Shuffle::kFull,
                                 .repeat = false});
  std::map<int32_t, int> times;
  for (const Batch& one : take_all(*input)) {
    const Ints row_labels = ids(one, "labels");
    const float* weights = one.at("weights").data<float>();
    for (size_t i = 0; i < row_labels.size(); ++i)
      if (weights[i] > 0) ++times[row_labels[i]];
  }
  // The first token of a document is not predicted.
  std::map<int32_t, int> expected;
  int64_t at = 0;
  for (int64_t length : lengths)
    for (int64_t i = 0; i < length; ++i, ++at)
      if (labels == Labels::kShiftRight || i > 0) expected[TokenFile::id_at(at)] = 1;
  REQUIRE(times == expected);
}

TEST_CASE("rows of one segment are consecutive pieces of the concatenated documents") {
  const TokenFile file({3, 10, 1});
  const auto input = open(file, {.batch = 4,
                                 .seq_len = 4,
                                 .labels = Labels::kOneSegment,
                                 .shuffle = Shuffle::kNone,
                                 .repeat = false});
  const std::vector<Batch> batches = take_all(*input);
  REQUIRE(batches.size() == 1);
  REQUIRE(ids(batches[0]) == Ints{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 0});
  REQUIRE(ids(batches[0], "labels") == Ints{2, 3, 4, 0, 6, 7, 8, 0, 10, 11, 12, 0, 14, 0, 0, 0});
  REQUIRE(ids(batches[0], "segment_ids") == Ints{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
  REQUIRE(ids(batches[0], "segment_pos") == Ints{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0, 0});
  const float* weights = batches[0].at("weights").data<float>();
  REQUIRE(std::vector<float>(weights, weights + 16) ==
          std::vector<float>{1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 0, 0, 0});
}

TEST_CASE("unpacked rows hold one document each, and a longer one takes several") {
  const TokenFile file({3, 10, 1});
  const auto input = open(file, {.batch = 5,
                                 .seq_len = 4,
                                 .packed = false,
                                 .labels = Labels::kShiftRight,
                                 .shuffle = Shuffle::kNone,
                                 .repeat = false});
  const std::vector<Batch> batches = take_all(*input);
  REQUIRE(batches.size() == 1);
  REQUIRE(ids(batches[0], "labels") ==
          Ints{1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 0, 0, 14, 0, 0, 0});
  REQUIRE(ids(batches[0]) == Ints{0, 1, 2, 0, 0, 4, 5, 6, 0, 8, 9, 10, 0, 12, 0, 0, 0, 0, 0, 0});
  REQUIRE(ids(batches[0], "segment_ids") ==
          Ints{1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0});
}

TEST_CASE("an epoch has each row once, and the next epoch has another order") {
  const TokenFile file({8 * 40 + 1});
  // Unpacked rows are the same in each epoch.
  const auto input = open(file, {.batch = 4, .packed = false});
  std::vector<std::vector<int32_t>> epochs;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t>& firsts = epochs.emplace_back();
    for (int batch = 0; batch < 10; ++batch) {
      const Ints row_ids = ids(*input->get_next());
      for (size_t row = 0; row < 4; ++row) firsts.push_back(row_ids[row * 8]);
    }
    REQUIRE(std::set<int32_t>(firsts.begin(), firsts.end()).size() >= 32);  // Ids repeat after 250.
  }
  REQUIRE(epochs[0] != epochs[1]);
  REQUIRE(epochs[1] != epochs[2]);
  std::sort(epochs[0].begin(), epochs[0].end());
  std::sort(epochs[1].begin(), epochs[1].end());
  REQUIRE(epochs[0] == epochs[1]);
}

TEST_CASE("packed training rows shift in each epoch, and stay within the tokens") {
  const TokenFile file({8 * 40 + 4});
  const auto input = open(file, {.batch = 39});
  std::set<int64_t> phases;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    const int64_t phase = input->phase(epoch);
    phases.insert(phase);
    const Batch batch = *input->get_next();  // One epoch: 39 rows.
    std::set<int32_t> firsts;
    for (size_t row = 0; row < 39; ++row) {
      firsts.insert(ids(batch)[row * 8]);
      REQUIRE(batch.at("weights").data<float>()[row * 8 + 7] == 1.0f);
    }
    REQUIRE(firsts.contains(TokenFile::id_at(phase)));
  }
  // 323 predictions in 39 rows of 8 leave an offset of 0 to 11.
  REQUIRE(*phases.begin() == 0);
  REQUIRE(*phases.rbegin() == 11);
  REQUIRE(phases.size() == 12);
}

TEST_CASE("a stream resumes exactly at any position") {
  const TokenFile file({100, 50, 200, 7, 90});
  const bool packed = GENERATE(true, false);
  const bool repeat = GENERATE(true, false);
  const Settings settings{.packed = packed, .repeat = repeat};
  const auto straight = open(file, settings);
  std::vector<std::optional<Batch>> batches;
  std::vector<InputState> states;
  for (int i = 0; i < 40; ++i) {
    states.push_back(straight->state());
    batches.push_back(straight->get_next());
  }
  for (size_t from = 0; from < states.size(); ++from) {
    const auto resumed = open(file, settings);
    resumed->restore(states[from]);
    for (size_t i = from; i < std::min(from + 3, batches.size()); ++i)
      REQUIRE(same(resumed->get_next(), batches[i]));
  }
}

TEST_CASE("peek returns the next batch without advancing") {
  const TokenFile file({300});
  const auto input = open(file, {});
  input->get_next();
  const auto peeked = input->peek();
  REQUIRE(input->state().position == 1);
  REQUIRE(same(peeked, input->peek()));
  REQUIRE(same(peeked, input->get_next()));
  REQUIRE(input->state().position == 2);
}

TEST_CASE("hosts share each global batch, and their number does not change the order") {
  const TokenFile file({500, 3, 90});
  const bool repeat = GENERATE(true, false);
  const auto whole = open(file, {.batch = 12, .repeat = repeat});
  for (int64_t hosts : {2, 3, 4, 12}) {
    whole->reset();
    std::vector<std::unique_ptr<FlatTokensInput>> shares;
    for (int64_t host = 0; host < hosts; ++host)
      shares.push_back(open(file, {.batch = 12, .repeat = repeat, .host = host, .hosts = hosts}));
    for (int batch = 0; batch < 8; ++batch) {
      const auto expected = whole->get_next();
      Ints together;
      bool ended = false;
      for (auto& share : shares) {
        const auto part = share->get_next();
        ended = !part;
        if (!part) continue;
        REQUIRE(part->at("ids").shape == share->specification().at("ids").shape);
        const Ints part_ids = ids(*part);
        together.insert(together.end(), part_ids.begin(), part_ids.end());
      }
      REQUIRE(ended == !expected.has_value());
      if (expected) REQUIRE(together == ids(*expected));
    }
  }
}

TEST_CASE("a run resumed with another batch size continues with the next example") {
  const TokenFile file({3000});
  const auto small = open(file, {.batch = 4});
  for (int i = 0; i < 6; ++i) small->get_next();
  const auto large = open(file, {.batch = 8});
  large->restore(small->state());
  REQUIRE(large->state().position == 3);
  Ints two = ids(*small->get_next());
  const Ints second = ids(*small->get_next());
  two.insert(two.end(), second.begin(), second.end());
  REQUIRE(ids(*large->get_next()) == two);
  const auto odd = open(file, {.batch = 7});
  odd->restore(small->state());  // After 32 rows.
  Ints eight = ids(*large->get_next());
  eight.resize(eight.size() / 8 * 7);
  REQUIRE(ids(*odd->get_next()) == eight);
}

TEST_CASE("a stream may end after a number of batches") {
  const TokenFile file({1000});
  const auto input = open(file, {.num_batches = 3});
  REQUIRE(take_all(*input).size() == 3);
}

TEST_CASE("another seed gives another order") {
  const TokenFile file({3000});
  REQUIRE_FALSE(same(open(file, {.seed = 1})->get_next(), open(file, {.seed = 2})->get_next()));
}

TEST_CASE("a batch in recycled memory is equal") {
  const TokenFile file({100, 1, 2, 30, 7, 90});
  const Labels labels = GENERATE(Labels::kNextToken, Labels::kShiftRight);
  const Settings settings{.labels = labels, .repeat = false};
  const auto fresh = open(file, settings);
  const auto again = open(file, settings);
  while (auto expected = fresh->get_next()) {
    auto batch = again->get_next();
    REQUIRE(same(batch, expected));
    for (auto& [name, array] : *batch)
      std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0xff});
    again->recycle(std::move(*batch));
  }
  REQUIRE_FALSE(again->get_next());
}

TEST_CASE("bytes of text are counted for labels with weight; there is one source") {
  const TokenFile file({20, 13});
  const auto input = open(file, {.batch = 4, .shuffle = Shuffle::kNone, .repeat = false});
  const auto batch = input->get_next();
  // One of 32 labels is a document's first token.
  REQUIRE(total({*batch}, "label_bytes") == 31);
  REQUIRE(total({*batch}, "weights") == 31);
  REQUIRE(batch->at("source").data<int32_t>()[3] == 0);
  REQUIRE(input->sources() == std::vector<std::string>{"train"});
}

// A file of one document with this tokenizer name and fingerprint.
std::string foreign_file(const TemporaryDirectory& directory, const std::string& name,
                         const std::string& fingerprint, const std::string& definition) {
  const std::string path =
      (directory / fmt::format("{}_{}_{}.h5", name, fingerprint, definition)).string();
  if (std::filesystem::exists(path)) return path;
  Hdf5File file = Hdf5File::create(path);
  const std::vector<uint32_t> tokens = {3, 4, 6, 8};
  const std::vector<uint64_t> starts = {0, 4};
  file.create_dataset("train/encoded_tokens", StoredType::kU32, {4})
      .write(std::as_bytes(std::span(tokens)));
  file.create_dataset("train/seq_starts", StoredType::kU64, {2})
      .write(std::as_bytes(std::span(starts)));
  file.set_attribute("train", "format_version", kFlatTokensVersion);
  file.set_attribute("train", "max_token_id", int64_t{4});
  file.set_attribute("train", "vocab_size", int64_t{257});
  file.set_attribute("train", "tokenizer", name);
  file.set_attribute("train", "tokenizer_fingerprint", fingerprint);
  if (!definition.empty())
    file.create_dataset("tokenizer", StoredType::kU8, {static_cast<int64_t>(definition.size())})
        .write(std::as_bytes(std::span(definition)));
  file.close();
  return path;
}

TEST_CASE("a tokenizer other than the file's is an error") {
  const TemporaryDirectory directory;
  const auto opened = [&](const std::string& path, const std::string& tokenizer) {
    FlatTokensInput::HParams p;
    p.path = path;
    p.tokenizer = tokenizer;
    p.global_batch_size = 1;
    p.seq_len = 3;
    auto input = std::make_unique<FlatTokensInput>(p);
    input->attach({});
    return input;
  };
  const std::string right = make_tokenizer("bytes")->fingerprint();
  // Embedded in the file under any name.
  const auto carried = opened(foreign_file(directory, "mine", right, "bytes"), "");
  REQUIRE(carried->tokenizer() != nullptr);
  REQUIRE(carried->tokenizer()->decode({'h' + 1, 'i' + 1}) == "hi");
  REQUIRE(carried->tokenizer()->encode_with_special("hi") == Ints{'h' + 1, 'i' + 1});
  // Neither embedded nor known: ids are numbers.
  const auto unknown = opened(foreign_file(directory, "mine", "mine-1", ""), "");
  REQUIRE(unknown->tokenizer() == nullptr);
  REQUIRE(unknown->get_next()->at("label_bytes").data<float>()[0] == 0);
  // Named in the configuration.
  REQUIRE(opened(foreign_file(directory, "mine", right, ""), "bytes")->tokenizer() != nullptr);
  REQUIRE_THROWS_WITH(opened(foreign_file(directory, "mine", "mine-1", ""), "bytes"),
                      Contains("made by tokenizer 'mine' with fingerprint 'mine-1'") &&
                          Contains("the given 'bytes' has '" + right + "'"));
  REQUIRE_THROWS_WITH(opened(foreign_file(directory, "bytes", "old", ""), ""),
                      Contains("this build's 'bytes' has '" + right + "'"));
  REQUIRE_THROWS_WITH(opened(foreign_file(directory, "mine", "mine-1", "no such"), ""),
                      Contains("no such.h5"));
}

TEST_CASE("invalid settings are refused with a message") {
  const TokenFile file({100});
  const TokenFile other({101});
  const auto made = [&](const Settings& settings) {
    return Template<BaseInput>(hparams_of(file, settings)).instantiate();
  };
  REQUIRE_THROWS_WITH(made({.batch = 0}), Contains("global_batch_size is 0"));
  REQUIRE_THROWS_WITH(made({.seq_len = 0}), Contains("seq_len is 0"));
  REQUIRE_THROWS_WITH(made({.num_batches = 0}), Contains("num_batches is 0"));
  REQUIRE_THROWS_WITH(made({.era_length = 0}), Contains("era_length is 0"));
  REQUIRE_THROWS_WITH(open(file, {.batch = 4, .hosts = 3}), Contains("not divisible by 3 hosts"));
  REQUIRE_THROWS_WITH(open(TokenFile({1}), {}), Contains("too few for a label"));
  const auto input = open(file, {});
  REQUIRE_THROWS_WITH(open(other, {})->restore(input->state()), Contains("differs from the run's"));
}

}  // namespace
}  // namespace tessera
