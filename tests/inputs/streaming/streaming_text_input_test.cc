// SPDX-License-Identifier: Apache-2.0
// Streaming from shards: every token once, resuming, and damaged shards. Agreement of hosts is
// tested in hosts_test.cc.
#include "inputs/streaming/streaming_text_input.h"

#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "inputs/prefetch.h"
#include "inputs/shuffle.h"
#include "tests/support/catch.h"
#include "tests/support/compress.h"
#include "tests/support/fuzz.h"
#include "tests/support/hosts.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

// Documents that end with ';', so that they can be separated in a token sequence.
std::string document(int number) {
  std::string text = std::to_string(number) + ":";
  for (int i = 0; i < (number * 11) % 53; ++i) text += static_cast<char>('a' + (number + i) % 26);
  return text + ";";
}

Texts documents(int begin, int end) {
  Texts texts;
  for (int i = begin; i < end; ++i) texts.push_back(document(i));
  return texts;
}

void write_lines(const fs::path& path, const Texts& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += "{\"text\": \"" + text + "\"}\n";
  write_bytes(path, lines);
}

// `shards` files of `each` documents.
void write_shards(const fs::path& directory, int shards, int each) {
  for (int i = 0; i < shards; ++i)
    write_lines(directory / fmt::format("{:03}.jsonl", i), documents(i * each, (i + 1) * each));
}

StreamingTextInput::HParams hparams(const fs::path& path, int64_t rows = 4) {
  StreamingTextInput::HParams p;
  p.path = path.string();
  p.validation_fraction = 0.0;
  p.global_batch_size = rows;
  p.seq_len = 10;
  p.labels = Labels::kShiftRight;
  p.repeat = false;
  return p;
}

std::unique_ptr<StreamingTextInput> open(const StreamingTextInput::HParams& p) {
  auto input = std::make_unique<StreamingTextInput>(p);
  input->attach({});
  return input;
}

// The text read by each row, with labels of all tokens.
Texts texts_of_rows(BaseInput& input, int64_t batches = 1000000) {
  Texts texts(static_cast<size_t>(input.global_batch_size()));
  for (int64_t number = 0; number < batches; ++number) {
    const std::optional<Batch> batch = input.get_next();
    if (!batch) break;
    const int64_t seq_len = batch->at("labels").shape[1];
    const auto* labels = batch->at("labels").data<int32_t>();
    const auto* paddings = batch->at("paddings").data<float>();
    for (size_t row = 0; row < texts.size(); ++row)
      for (int64_t i = 0; i < seq_len; ++i, ++labels, ++paddings)
        if (*paddings == 0.0f) texts[row] += input.tokenizer()->decode({*labels});
  }
  return texts;
}

Texts split_documents(const std::string& text) {
  Texts parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size() - 1) + 1;
    parts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

Texts sorted_documents(const Texts& rows) {
  Texts all;
  for (const std::string& row : rows)
    for (std::string& one : split_documents(row)) all.push_back(std::move(one));
  std::sort(all.begin(), all.end());
  return all;
}

Texts sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

TEST_CASE("an epoch of a stream has every token of every document once") {
  for (const auto& [shards, rows] : {std::pair{1, 1}, {1, 4}, {3, 4}, {4, 4}, {9, 4}, {5, 7}}) {
    for (const int64_t block : {1, 5, 1000}) {
      INFO(shards << " shards, " << rows << " rows, shuffled by " << block);
      const TemporaryDirectory directory;
      write_shards(directory.path(), shards, 13);
      StreamingTextInput::HParams p = hparams(directory.path(), rows);
      p.shuffle_documents = block;
      REQUIRE(sorted_documents(texts_of_rows(*open(p))) == sorted(documents(0, shards * 13)));
    }
  }
}

TEST_CASE("rows share documents evenly, without padding except at the end") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 2, 60);
  const auto input = open(hparams(directory.path(), 6));
  std::vector<size_t> counts;
  for (const std::string& row : texts_of_rows(*input)) {
    counts.push_back(split_documents(row).size());
    REQUIRE(counts.back() == 20);
  }
  input->reset();
  const Batch batch = *input->get_next();
  const auto* paddings = batch.at("paddings").data<float>();
  REQUIRE(std::count(paddings, paddings + 60, 1.0f) == 0);
}

TEST_CASE("with next-token labels every token but each document's first is predicted once") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 3, 20);
  StreamingTextInput::HParams p = hparams(directory.path());
  p.labels = Labels::kNextToken;
  const auto input = open(p);
  double weights = 0, bytes = 0, expected = 0;
  for (const std::string& text : documents(0, 60)) expected += static_cast<double>(text.size()) - 1;
  while (const std::optional<Batch> batch = input->get_next()) {
    const HostArray& array = batch->at("weights");
    for (int64_t i = 0; i < array.shape[0] * array.shape[1]; ++i) weights += array.data<float>()[i];
    for (int64_t i = 0; i < array.shape[0]; ++i) bytes += batch->at("label_bytes").data<float>()[i];
  }
  REQUIRE(weights == expected);
  REQUIRE(bytes == expected);
}

TEST_CASE("shards are in another order in each epoch, with each document once") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 12, 3);
  StreamingTextInput::HParams p = hparams(directory.path(), 1);
  p.repeat = true;
  int64_t tokens = 0;
  for (const std::string& text : documents(0, 36)) tokens += static_cast<int64_t>(text.size());
  const Texts read = split_documents(texts_of_rows(*open(p), 3 * tokens / p.seq_len.get())[0]);
  std::set<Texts> orders;
  for (size_t epoch = 0; epoch + 1 < 3; ++epoch) {
    const Texts order(read.begin() + static_cast<int64_t>(epoch) * 36,
                      read.begin() + static_cast<int64_t>(epoch + 1) * 36);
    REQUIRE(sorted(order) == sorted(documents(0, 36)));
    orders.insert(order);
  }
  REQUIRE(orders.size() == 2);
  p.shuffle = false;
  const Texts in_order = split_documents(texts_of_rows(*open(p), 20)[0]);
  REQUIRE(Texts(in_order.begin(), in_order.begin() + 6) == documents(0, 6));
}

TEST_CASE("documents are shuffled within blocks only") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 1, 40);
  StreamingTextInput::HParams p = hparams(directory.path(), 1);
  p.shuffle_documents = 10;
  const Texts read = split_documents(texts_of_rows(*open(p))[0]);
  REQUIRE(read != documents(0, 40));
  for (int block = 0; block < 4; ++block) {
    const Texts here(read.begin() + block * 10, read.begin() + block * 10 + 10);
    REQUIRE(here != documents(block * 10, block * 10 + 10));
    REQUIRE(sorted(here) == sorted(documents(block * 10, block * 10 + 10)));
  }
}

TEST_CASE("the validation split is the complement of the training split, in all shards") {
  const TemporaryDirectory directory;
  write_shards(directory / "a", 4, 50);
  write_shards(directory / "b", 1, 200);
  for (const char* folder : {"a", "b"}) {
    StreamingTextInput::HParams p = hparams(directory / folder);
    p.validation_fraction = 0.2;
    Texts train = sorted_documents(texts_of_rows(*open(p)));
    p.split = StreamSplit::kValidation;
    const Texts held_out = sorted_documents(texts_of_rows(*open(p)));
    REQUIRE(held_out.size() > 20);
    for (const std::string& text : held_out) REQUIRE(in_validation_split(text, 0.2));
    train.insert(train.end(), held_out.begin(), held_out.end());
    REQUIRE(sorted(train) == sorted(documents(0, 200)));
  }
}

TEST_CASE("the first documents of each file are held out without reading the others") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 4, 50);
  for (int64_t rows : {1, 4, 7}) {
    StreamingTextInput::HParams p = hparams(directory.path(), rows);
    p.validation_docs_per_file = 3;
    p.num_workers = rows;
    Texts train = sorted_documents(texts_of_rows(*open(p)));
    // What follows the documents held out is not read: it may be corrupt.
    for (int shard = 0; shard < 4; ++shard) {
      const fs::path file = directory / fmt::format("{:03}.jsonl", shard);
      std::string lines = read_bytes(file);
      const size_t third = lines.find(fmt::format("{{\"text\": \"{}:", shard * 50 + 3));
      write_bytes(file, lines.substr(0, third) + "{\"te\n");
    }
    p.split = StreamSplit::kValidation;
    const Texts held_out = sorted_documents(texts_of_rows(*open(p)));
    Texts expected;
    for (int shard = 0; shard < 4; ++shard)
      std::ranges::copy(documents(shard * 50, shard * 50 + 3), std::back_inserter(expected));
    REQUIRE(held_out == sorted(expected));
    train.insert(train.end(), held_out.begin(), held_out.end());
    REQUIRE(sorted(train) == sorted(documents(0, 200)));
    write_shards(directory.path(), 4, 50);
  }
}

TEST_CASE("a stream resumes from every batch's state, whatever was prefetched") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 3, 7);
  for (const Labels labels : {Labels::kShiftRight, Labels::kNextToken, Labels::kOneSegment}) {
    for (const int64_t block : {1, 4}) {
      StreamingTextInput::HParams p = hparams(directory.path());
      p.labels = labels;
      p.shuffle_documents = block;
      p.repeat = true;
      constexpr size_t kBatches = 60;  // Several epochs.
      std::vector<InputState> states;
      std::vector<std::optional<Batch>> batches;
      const auto input = open(p);
      for (size_t i = 0; i < kBatches; ++i) {
        states.push_back(input->state());
        batches.push_back(input->get_next());
        REQUIRE(batches.back());
      }
      p.num_workers = 1;
      for (size_t from = 0; from < kBatches; from += 3) {
        INFO("from batch " << from);
        const auto resumed = open(p);
        resumed->restore(states[from]);
        REQUIRE(resumed->state().cursors == states[from].cursors);
        for (size_t i = from; i < std::min(from + 5, kBatches); ++i)
          REQUIRE(same_batch(resumed->get_next(), batches[i]));
        resumed->restore(states[0]);
        REQUIRE(same_batch(resumed->peek(), batches[0]));
        REQUIRE(same_batch(resumed->get_next(), batches[0]));
      }
    }
  }
}

TEST_CASE("a prefetched stream is the same stream") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 5, 9);
  StreamingTextInput::HParams p = hparams(directory.path());
  const auto plain = open(p);
  Prefetch ahead(open(p), 3);
  for (int i = 0; i < 12; ++i) {
    REQUIRE(ahead.state().cursors == plain->state().cursors);
    REQUIRE(same_batch(ahead.get_next(), plain->get_next()));
  }
  const InputState state = ahead.state();
  const std::optional<Batch> next = ahead.get_next();
  ahead.reset();
  ahead.restore(state);
  REQUIRE(same_batch(ahead.get_next(), next));
}

TEST_CASE("a long document continues from row to row") {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 300; ++i) text += std::to_string(i) + ",";
  write_bytes(directory / "long.txt", text);
  const auto input = open(hparams(directory / "long.txt", 1));
  REQUIRE(texts_of_rows(*input) == Texts{text});
  write_bytes(directory / "parts.txt", "one;\n--\ntwo;\n--\nthree;");
  StreamingTextInput::HParams p = hparams(directory / "parts.txt", 1);
  p.separator = "\n--\n";
  REQUIRE(texts_of_rows(*open(p)) == Texts{"one;two;three;"});
  const Batch batch = *open(p)->get_next();
  const auto* segments = batch.at("segment_ids").data<int32_t>();
  REQUIRE(std::vector<int32_t>(segments, segments + 10) ==
          std::vector<int32_t>{1, 1, 1, 1, 2, 2, 2, 2, 3, 3});
}

TEST_CASE("fewer documents than rows, an empty split and missing files are reported") {
  const TemporaryDirectory directory;
  write_bytes(directory / "one.txt", "a single text");
  StreamingTextInput::HParams p = hparams(directory / "one.txt");
  p.repeat = true;
  REQUIRE_THROWS_WITH(open(p)->get_next(),
                      Contains("found no document of split 'train' in two epochs of 1 shard (") &&
                          Contains("fewer documents than rows") && Contains("use TextInput"));
  p.repeat = false;  // The other rows are then padding.
  REQUIRE(sorted(texts_of_rows(*open(p))).back() == "a single text");
  p.path = (directory / "none/*.jsonl").string();
  REQUIRE_THROWS_WITH(open(p),
                      Contains("no file matches it as a pattern") && Contains("input 'train'"));
  fs::create_directories(directory / "empty");
  p.path = (directory / "empty").string();
  REQUIRE_THROWS_WITH(open(p), Contains("no text files found"));
}

TEST_CASE("invalid settings are refused with a suggestion") {
  const TemporaryDirectory directory;
  const auto refused = [&](auto change, const std::string& message) {
    StreamingTextInput::HParams p = hparams(directory.path());
    change(p);
    REQUIRE_THROWS_WITH(Template<BaseInput>(p).instantiate(), Contains(message));
  };
  using P = StreamingTextInput::HParams;
  refused([](P& p) { p.seq_len = 0; }, "seq_len is 0, expected 1 to");
  refused([](P& p) { p.num_workers = 0; }, "num_workers is 0");
  refused([](P& p) { p.shuffle_documents = 0; }, "shuffle_documents is 0");
  refused([](P& p) { p.num_batches = 0; }, "num_batches is 0, expected at least 1, or -1");
  refused([](P& p) { p.validation_fraction = 1.5; }, "validation_fraction is 1.5");
  refused([](P& p) { p.split = StreamSplit::kValidation; }, "split is empty");
}

TEST_CASE("corrupt records stop a stream with file and line, or are counted in its state") {
  const TemporaryDirectory directory;
  for (int shard = 0; shard < 3; ++shard) {
    Texts texts = documents(shard * 20, shard * 20 + 20);
    write_lines(directory / fmt::format("{}.jsonl", shard), texts);
  }
  std::string lines = read_bytes(directory / "1.jsonl");
  lines.insert(lines.find("{\"text\": \"25"), "{\"text\": \"cut sho\n{\"txt\": 1}\n");
  write_bytes(directory / "1.jsonl", lines);
  StreamingTextInput::HParams p = hparams(directory.path(), 2);
  REQUIRE_THROWS_WITH(texts_of_rows(*open(p)), Contains("1.jsonl:6"));

  p.broken_documents = CorruptRecords::kSkip;
  const auto input = open(p);
  REQUIRE(sorted_documents(texts_of_rows(*input)) == sorted(documents(0, 60)));
  REQUIRE(corrupt_records(input->state()).count == 2);
  REQUIRE_THAT(corrupt_records(input->state()).first, Contains("1.jsonl:"));

  // Each row counts its own, also after resuming.
  for (const int64_t rows : {1, 7}) {
    p.global_batch_size = rows;
    const auto whole = open(p);
    InputState middle;
    for (int i = 0; i < 30 && whole->get_next(); ++i) middle = whole->state();
    REQUIRE(corrupt_records(whole->state()).count <= 2);
    const auto resumed = open(p);
    resumed->restore(middle);
    texts_of_rows(*resumed);
    REQUIRE(corrupt_records(resumed->state()).count == 2);
  }
}

TEST_CASE("a document that needs too many steps of a pattern stops a stream, or is counted") {
  const TemporaryDirectory directory;
  write_bytes(
      directory / "t.json",
      R"({"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": )"
      R"("(a|aa)+$"}}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  Texts texts(50, "aab");
  texts[16] = std::string(100, 'a') + "b";
  write_lines(directory / "0.jsonl", texts);
  StreamingTextInput::HParams p = hparams(directory / "0.jsonl", 1);
  p.tokenizer = (directory / "t.json").string();
  const auto tokens_of = [](BaseInput& input) {
    size_t batches = 0;
    while (input.get_next()) ++batches;
    return batches * 10;
  };
  REQUIRE_THROWS_WITH(
      tokens_of(*open(p)),
      Contains("0.jsonl:17: ") && Contains("the pattern '(a|aa)+$' cannot be matched"));
  p.broken_documents = CorruptRecords::kSkip;
  const auto input = open(p);
  REQUIRE(tokens_of(*input) == 150);  // 49 documents of 3 tokens, in rows of 10.
  REQUIRE(corrupt_records(input->state()).count == 1);
  REQUIRE_THAT(corrupt_records(input->state()).first, Contains("0.jsonl:17: "));
}

TEST_CASE("a stream of corrupt records only reports them") {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.jsonl", "{\"content\": \"x\"}\n{\"content\": \"y\"}\n");
  StreamingTextInput::HParams p = hparams(directory.path(), 1);
  p.repeat = true;
  p.broken_documents = CorruptRecords::kSkip;
  REQUIRE_THROWS_WITH(open(p)->get_next(),
                      Contains("4 could not be read, the first:") && Contains("a.jsonl:1"));
}

TEST_CASE("an unreadable shard stops the stream there; once repaired, the stream resumes exactly") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 2, 40);
  StreamingTextInput::HParams p = hparams(directory.path(), 2);
  p.shuffle = false;
  const auto whole = open(p);
  std::vector<std::optional<Batch>> batches;
  for (int i = 0; i < 60; ++i) batches.push_back(whole->get_next());

  const std::string lines = read_bytes(directory / "001.jsonl");
  const size_t broken_line = lines.find("{\"text\": \"70");
  write_bytes(directory / "001.jsonl", lines.substr(0, broken_line) + "{\"te\n");
  Prefetch input(open(p));
  size_t given_out = 0;
  std::string error;
  InputState state = input.state();
  try {
    for (; input.get_next(); ++given_out) state = input.state();
  } catch (const Error& caught) {
    error = caught.what();
  }
  REQUIRE_THAT(error, Contains("001.jsonl:31"));
  REQUIRE(given_out > 10);
  REQUIRE(state.position == static_cast<int64_t>(given_out));
  REQUIRE_THROWS_AS(input.get_next(), Error);  // The error is permanent.
  REQUIRE(input.state().cursors == state.cursors);

  write_bytes(directory / "001.jsonl", lines);
  const auto repaired = open(p);
  repaired->restore(state);
  for (size_t i = given_out; i < batches.size(); ++i)
    REQUIRE(same_batch(repaired->get_next(), batches[i]));
}

TEST_CASE("a truncated compressed shard stops the stream, even if corrupt records are skipped") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 1, 400);
  const std::string lines = read_bytes(directory / "000.jsonl");
  fs::remove(directory / "000.jsonl");
  for (const char* name : {"000.jsonl.gz", "000.jsonl.zst"}) {
    const std::string packed = name == std::string("000.jsonl.gz") ? gzip(lines) : zstd(lines);
    StreamingTextInput::HParams p = hparams(directory / name, 2);
    p.broken_documents = CorruptRecords::kSkip;
    write_bytes(directory / name, packed);
    const auto whole = open(p);
    REQUIRE(sorted_documents(texts_of_rows(*whole)) == sorted(documents(0, 400)));
    REQUIRE(corrupt_records(whole->state()).count == 0);
    write_bytes(directory / name, packed.substr(0, packed.size() / 2));
    REQUIRE_THROWS_WITH(texts_of_rows(*open(p)), Contains(name));
  }
}

TEST_CASE("a shard that has lost data already read is detected") {
  const TemporaryDirectory directory;
  write_shards(directory.path(), 1, 30);
  StreamingTextInput::HParams p = hparams(directory.path(), 1);
  const auto input = open(p);
  for (int i = 0; i < 50; ++i) input->get_next();
  const InputState state = input->state();
  write_lines(directory / "000.jsonl", documents(0, 5));
  const auto resumed = open(p);
  resumed->restore(state);
  REQUIRE_THROWS_WITH(resumed->get_next(), Contains("000.jsonl"));
}

TEST_CASE("the state of another stream is refused with both descriptions") {
  const TemporaryDirectory directory;
  write_shards(directory / "a", 3, 9);
  write_shards(directory / "b", 4, 9);
  const auto first = open(hparams(directory / "a"));
  first->get_next();
  const InputState state = first->state();
  const auto refused = [&](const StreamingTextInput::HParams& p, const std::string& message) {
    REQUIRE_THROWS_WITH(open(p)->restore(state), Contains(message));
  };
  refused(hparams(directory / "b"), "it was (3 shards");
  refused(hparams(directory / "b"), "it is (4 shards");
  StreamingTextInput::HParams p = hparams(directory / "a");
  p.seed = 7;
  refused(p, "seed 7");
  const auto second = open(hparams(directory / "a"));
  REQUIRE_THROWS_WITH(second->restore({3, {}}), Contains("of another kind of input"));
  InputState partial = state;
  partial.cursors.erase("lane/000002");
  REQUIRE_THROWS_WITH(second->restore(partial), Contains("has no lane 2"));
  fs::rename(directory / "a", directory / "moved");  // Equal data in another location.
  open(hparams(directory / "moved"))->restore(state);
}

TEST_CASE("malformed cursors in a checkpoint are refused") {
  const StreamCursor place{{.unit = 7, .block = {12, 3456}, .index = 2, .corrupt = {}}, 89};
  REQUIRE(stream_cursor_text(place) == "7 12 3456 2 89");
  REQUIRE(stream_cursor_text(parse_stream_cursor("7 12 3456 2 89", "row")) == "7 12 3456 2 89");
  for (const char* bad : {"", "7", "7 12 3456 2", "7 12 3456 2 -1", "7 12 3456 2 89 ", "7 12 x 2 8",
                          "99999999999999999999 1 1 1 1", " 7 12 3456 2 89"})
    REQUIRE_THROWS_WITH(parse_stream_cursor(bad, "row 3"), Contains("row 3 is '"));
  const auto target = [](std::string_view text) { parse_stream_cursor(std::string(text), "row"); };
  REQUIRE(fuzz("lane_place", {"7 12 3456 2 89"}, target, kFastFuzz).refused > 0);
}

}  // namespace
}  // namespace tessera
