// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <span>
#include <sstream>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/io/hdf5.h"
#include "inputs/flat_tokens/flat_tokens_file.h"
#include "inputs/token_row.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/source_tree.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;

struct Result {
  int code = 0;
  std::string out;
  std::string errors;
};

Result call(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream errors;
  const int code = run_flat_tokens(arguments, out, errors);
  return {code, out.str(), errors.str()};
}

TEST_CASE("a token file is built from text and inspected") {
  const TemporaryDirectory directory;
  const std::string text = (directory / "t.txt").string();
  const std::string tokens = (directory / "t.h5").string();
  write_bytes(text, "first line\nsecond\tline \xc3\xa9\n" + std::string(60, 'z'));
  const Result built =
      call({"build", "--output=" + tokens, "--validation_fraction=0.25", "--compression=5", text});
  REQUIRE(built.errors == "");
  REQUIRE(built.code == 0);
  REQUIRE_THAT(built.out, Contains("64 training and 22 validation tokens"));
  const Result seen = call({"inspect", tokens, "--length=28"});
  REQUIRE(seen.code == 0);
  REQUIRE_THAT(seen.out, Contains("train: 64 tokens; documents: 1, of 64 to 64 tokens, median 64"));
  REQUIRE_THAT(seen.out, Contains("validation: 22 tokens"));
  REQUIRE_THAT(seen.out, Contains("vocabulary 257") && Contains("tokenizer bytes"));
  REQUIRE_THAT(seen.out, Contains("document 0: first line\\nsecond\\tline \xc3\xa9\\nzz"));
  REQUIRE_THAT(seen.out, Contains("64 bytes of text, 1.000 per token"));
  REQUIRE_THAT(seen.out, Contains("64 to 127 tokens  ####"));
  REQUIRE_THAT(seen.out, Contains("most frequent: 123 'z' 59.38 %, "));
  REQUIRE_THAT(call({"inspect", tokens, "--split=validation"}).out, !Contains("train:"));
}

TEST_CASE("two files are compared by what they were built from") {
  const TemporaryDirectory directory;
  const auto built = [&](const std::string& name, const std::string& text,
                         const std::vector<std::string>& flags = {}) {
    write_bytes(directory / "t.txt", text);
    std::vector<std::string> words = {"build", "--output=" + (directory / name).string(),
                                      (directory / "t.txt").string()};
    words.insert(words.end(), flags.begin(), flags.end());
    REQUIRE(call(words).code == 0);
    return (directory / name).string();
  };
  const std::string text = "some text " + std::string(60, 'z');
  const std::string one = built("one.h5", text), same = built("same.h5", text);
  REQUIRE_THAT(call({"inspect", one}).out, Contains("  of 1 files, by Tessera "));
  REQUIRE(call({"inspect", one, same}).out == "no difference\n");
  const std::string other = built("other.h5", "Some text " + std::string(60, 'z'));
  REQUIRE(std::filesystem::exists(other));
  const std::string of_other = call({"inspect", one, other}).out;
  REQUIRE_THAT(of_other, Contains("train, first tokens: 63 tokens, 1 documents") &&
                             Contains("\n1 files with other contents: t.txt\n"));
  const std::string bpe =
      built("bpe.h5", text + text,
            {"--tokenizer=" TESSERA_SOURCE_DIR "/tests/golden/trained_tokenizers/cl100k.json"});
  const std::string of_bpe = call({"inspect", one, bpe}).out;
  REQUIRE_THAT(of_bpe, Contains("train: 63 tokens in 1 documents, then ") &&
                           Contains("train, tokenizer: bytes (bytes-plus-1), then ") &&
                           Contains("tokenizer: bytes-plus-1 257, then bpe-"));
  FlatTokensWriter old(directory / "old.h5", *make_tokenizer("bytes"));
  old.begin_split("train");
  old.add_document(std::vector<int32_t>{1, 2, 3});
  old.finish();
  REQUIRE_THAT(call({"inspect", one, (directory / "old.h5").string()}).out,
               Contains("old.h5 has no manifest: an older version or another program made it") &&
                   Contains("validation: 7 tokens in 1 documents, then none"));
}

// A record of a tf.Example with the feature "ids"; `list` is its Int64List.
void write_example(const std::filesystem::path& path, const std::string& list) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string(1, static_cast<char>(8 * number + 2)) +
           std::string(1, static_cast<char>(bytes.size())) + bytes;
  };
  const std::string entry = field(1, "ids") + field(2, field(3, list));
  const std::string example = field(1, field(1, entry));
  const uint64_t size = example.size();
  const std::string length(reinterpret_cast<const char*>(&size), sizeof(size));
  const auto checksum = [](const std::string& data) {
    const uint32_t sum = masked_crc32c(data);
    return std::string(reinterpret_cast<const char*>(&sum), sizeof(sum));
  };
  write_bytes(path, length + checksum(length) + example + checksum(example));
}

TEST_CASE("lists of ids become a token file without a tokenizer's work") {
  const TemporaryDirectory directory;
  const auto built = [&](const std::string& field, const std::string& input) {
    return call({"build", "--output=" + (directory / "ids.h5").string(), "--overwrite",
                 "--validation_fraction=0", "--tokens_field=" + field, "--vocab_size=257", input});
  };
  // The golden file has the ids of the texts of another one, which are tokenised here.
  const std::string golden = (source_root() / "tests/golden/documents").string();
  REQUIRE(built("targets", golden + "/ids.tfrecord").errors == "");
  REQUIRE(call({"build", "--output=" + (directory / "texts.h5").string(), "--tokenizer=bytes",
                "--validation_fraction=0", golden + "/c4.tfrecord-00000-of-00001"})
              .code == 0);
  const auto tokens_of = [&](const char* name) {
    const FlatTokensReader file(directory / name, "train");
    std::vector<uint32_t> tokens(static_cast<size_t>(file.num_tokens()));
    file.read(0, tokens);
    return tokens;
  };
  const auto expected = tokens_of("texts.h5");
  REQUIRE(expected.size() > 500);
  REQUIRE(tokens_of("ids.h5") == expected);
  // 5, 256 and 7 in a packed list, one by one, and in lines of JSON.
  const std::string numbers = "\x05\x80\x02\x07";
  write_example(directory / "packed.tfrecord", "\x0a\x04" + numbers);
  write_example(directory / "single.tfrecord", "\x08\x05\x08\x80\x02\x08\x07");
  write_bytes(directory / "lines.jsonl", "{\"ids\": [5, 256]}\n{\"ids\": []}\n{\"ids\": [7]}\n");
  for (const char* name : {"packed.tfrecord", "single.tfrecord", "lines.jsonl"}) {
    REQUIRE(built("ids", (directory / name).string()).errors == "");
    std::vector<int32_t> ids;
    for (const uint32_t token : tokens_of("ids.h5")) ids.push_back(token_id(token));
    REQUIRE(ids == std::vector<int32_t>{5, 256, 7});
  }
  const auto refused = [&](const std::string& text, const std::string& error) {
    write_bytes(directory / "bad.jsonl", text + "\n");
    REQUIRE_THAT(built("ids", (directory / "bad.jsonl").string()).errors, Contains(error));
  };
  refused("{\"ids\": [5, 257]}", "bad.jsonl:1: id 257 at place 1: the vocabulary has 0 to 256");
  refused("{\"ids\": [5, -1]}", "id -1 at place 1");
  refused("{\"ids\": [5, 1.5]}", "the field 'ids' is a list, expected a list of integers");
  refused("{\"ids\": \"5\"}", "the field 'ids' is a string, expected a list of integers");
  REQUIRE_THAT(built("text", golden + "/ids.tfrecord").errors, Contains("is not a list of int64"));
  write_bytes(directory / "a.txt", "text");
  REQUIRE_THAT(built("ids", (directory / "a.txt").string()).errors,
               Contains("expected TFRecord or lines of JSON"));
}

TEST_CASE("a build says which id ends documents, or that none does") {
  const TemporaryDirectory directory;
  const std::string text = (directory / "t.txt").string();
  const std::string output = "--output=" + (directory / "t.h5").string();
  write_bytes(text, std::string(2000, 'a'));
  REQUIRE_THAT(call({"build", output, text}).out,
               Contains("\n  no id ends documents: the tokenizer has no end token\n"));
  write_bytes(directory / "t.json",
              R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true}], "model": )"
              R"({"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  const std::string tokenizer = "--tokenizer=" + (directory / "t.json").string();
  REQUIRE_THAT(call({"build", output, "--overwrite", tokenizer, text}).out,
               Contains("\n  id 1 ends documents: '</s>'\n"));
  REQUIRE_THAT(
      call({"build", output, "--overwrite", tokenizer, "--end_of_document=none", text}).out,
      Contains("\n  no id ends documents (--end_of_document=none)\n"));
}

TEST_CASE("integers are written as in the flags of experiments") {
  const TemporaryDirectory directory;
  const std::string text = (directory / "t.txt").string();
  const std::string output = "--output=" + (directory / "t.h5").string();
  write_bytes(text, std::string(2000, 'z'));
  for (const char* number : {"1000", "1e3", "1_000"}) {
    const Result built = call({"build", output, "--max_tokens=" + std::string(number), text});
    CAPTURE(number, built.errors);
    REQUIRE(built.code == 0);
    REQUIRE_THAT(built.out, Contains("1000 training and"));
  }
  for (const char* number : {"", "1.5", "1e30", "0", "-1", "1e3x"})
    REQUIRE(call({"build", output, "--max_tokens=" + std::string(number), text}).code == 2);
  REQUIRE(call({"build", output, "--threads=4294967297", text}).code == 2);  // 2^32 + 1.
}

void write_tokens(const std::filesystem::path& path, const TokenizerIdentity& tokenizer,
                  const std::vector<std::vector<int32_t>>& documents) {
  FlatTokensWriter writer(path, tokenizer);
  writer.begin_split("train");
  for (const auto& document : documents) writer.add_document(document);
  writer.finish();
}

TEST_CASE("lengths, frequencies and examples match the tokens") {
  const TemporaryDirectory directory;
  const std::string path = (directory / "t.h5").string();
  write_tokens(path, unknown_tokenizer(1000),
               {{7}, {7, 900}, {7, 7, 7}, {5, 5, 5, 5, 5}, {1, 2, 3, 4, 5, 6, 7, 7, 7}});
  const Result seen = call({"inspect", path, "--examples=2", "--first=3", "--most_frequent=2"});
  REQUIRE(seen.errors == "");
  REQUIRE_THAT(seen.out, Contains("train: 20 tokens; documents: 5, of 1 to 9 tokens, median 3"));
  REQUIRE_THAT(seen.out, Contains("vocabulary 1000, 8 ids in use (0.80 %), the largest 900"));
  REQUIRE_THAT(seen.out, Contains("2 to 3 tokens  " + std::string(40, '#') + "  2 (40.00 %)"));
  REQUIRE_THAT(seen.out, Contains("4 to 7 tokens  " + std::string(20, '#') + " "));
  REQUIRE_THAT(seen.out, Contains("most frequent: 7 40.00 %, 5 30.00 %\n"));
  REQUIRE_THAT(seen.out,
               Contains("document 3: 5 5 5 5 5\n") && Contains("document 4: 1 2 3 4 5 6 7 7 7\n"));
  REQUIRE_THAT(seen.out, !Contains("bytes of text"));
}

TEST_CASE("undecodable ids are shown as numbers, and control characters are escaped") {
  const TemporaryDirectory directory;
  const std::string path = (directory / "t.h5").string();
  write_tokens(path, {"broken", "b", "no definition", 300}, {{7, 8}});
  const Result broken = call({"inspect", path});
  REQUIRE(broken.code == 0);
  REQUIRE_THAT(broken.errors, Contains("ids are shown as numbers: "));
  REQUIRE_THAT(broken.out, Contains("document 0: 7 8"));
  REQUIRE_THAT(call({"inspect", path, "--tokenizer=bytes"}).errors,
               Contains("made by tokenizer 'broken' with fingerprint 'b'; the given 'bytes' has"));
  const auto bytes = make_tokenizer("bytes");
  write_tokens(path, identity_of(*bytes), {bytes->encode("\x1b[2J\xff \xe2\x80\xae\xe4\xb8\xad")});
  REQUIRE_THAT(call({"inspect", path}).out,
               Contains("document 0: \\x1b[2J\\xff \\u202e\xe4\xb8\xad\n"));
}

TEST_CASE("a file with a max_token_id of two billion is inspected in little memory") {
  const TemporaryDirectory directory;
  const std::string path = (directory / "t.h5").string();
  write_tokens(path, unknown_tokenizer(int64_t{1} << 31), {{2147483647, 3, 3}});
  REQUIRE_THAT(
      call({"inspect", path}).out,
      Contains("2 ids in use") && Contains("most frequent: 3 66.67 %, 2147483647 33.33 %"));
}

TEST_CASE("usage errors exit with 2 and suggest the nearest name") {
  const TemporaryDirectory directory;
  write_bytes(directory / "t.txt", "text");
  const std::string text = (directory / "t.txt").string();
  const std::string output = "--output=" + (directory / "t.h5").string();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Result result = call(arguments);
    CAPTURE(why, result.errors);
    REQUIRE(result.code == 2);
    REQUIRE_THAT(result.errors, Contains(why) && Contains("flat_tokens --help"));
  };
  refused({}, "expected a command");
  refused({"biuld"}, "did you mean 'build'");
  refused({"build", text}, "needs --output");
  refused({"build", output}, "at least one PATH");
  refused({"build", output, "--max_token=5", text},
          "unknown flag --max_token; did you mean --max_tokens?");
  refused({"build", output, "--max_tokens=many", text},
          "--max_tokens=many: expected a whole number");
  refused({"build", output, "--compression=10", text}, "from 0 to 9");
  refused({"build", output, "--validation_fraction=nan", text}, "--validation_fraction=nan");
  refused({"build", output, "--compression", text}, "--compression needs a value");
  refused({"build", output, output, text}, "--output is given more than once");
  refused({"inspect"}, "needs one FILE");
  refused({"import", output}, "needs one STORE");
  refused({"import", "a"}, "needs --output");
  refused({"build", output, "--broken=skp", text},
          "expected one of fail, skip; did you mean 'skip'");
  refused({"build", output, "--validation=a", "--validation_fraction=0.1", text}, "exclude each");
  refused({"build", output, "--vocab_size=9", text}, "t.txt is text, which needs --tokenizer");
  refused({"build", output, "--format=bin", text}, "give their tokenizer with --tokenizer=FILE");
  refused({"build", output, "--end_id=9", "--end_of_document=none", text}, "exclude each other");
  const Result help = call({"build", "--help"});
  REQUIRE(help.code == 0);
  REQUIRE_THAT(help.out,
               Contains("flat_tokens build --output=FILE PATH...\n") &&
                   Contains("\n  --compression=N        deflate level (0 to 9; default: 0)") &&
                   !Contains("flat_tokens inspect"));
  for (const char* command : {"build", "inspect", "import", "train"})
    REQUIRE_THAT(call({"--help"}).out, Contains(fmt::format("flat_tokens {} ", command)));
}

TEST_CASE("an output of another tokenizer is replaced only with --overwrite") {
  const TemporaryDirectory directory;
  const std::string text = (directory / "t.txt").string();
  const std::string output = "--output=" + (directory / "t.h5").string();
  const std::string other =
      std::string("--tokenizer=") + TESSERA_SOURCE_DIR "/tests/golden/tokenizers/bpe.model";
  write_bytes(text, "some text of a few words");
  REQUIRE(call({"build", output, text}).code == 0);
  const std::string before = read_bytes(directory / "t.h5");
  const Result refused = call({"build", output, other, text});
  REQUIRE(refused.code == 2);
  REQUIRE_THAT(refused.errors, Contains("was made with the tokenizer 'bytes', not with") &&
                                   Contains("--overwrite replaces it"));
  REQUIRE(read_bytes(directory / "t.h5") == before);
  REQUIRE(call({"build", output, text}).code == 0);  // By the same tokenizer.
  REQUIRE(call({"build", "--overwrite", output, other, text}).code == 0);
  REQUIRE(read_bytes(directory / "t.h5") != before);
  const Result text_file = call({"build", "--output=" + text, text});
  REQUIRE(text_file.code == 2);
  REQUIRE_THAT(text_file.errors, Contains("exists and is not a token file"));
  REQUIRE(read_bytes(text) == "some text of a few words");
  REQUIRE_THAT(call({"build", "--overwrite=yes", output, text}).errors,
               Contains("--overwrite takes no value"));
}

TEST_CASE("an output is never one of the inputs, by whatever path or link") {
  const TemporaryDirectory directory;
  const std::string lines = (directory / "a.jsonl").string();
  const std::string line = "{\"text\": \"some text of a few words\"}\n";
  const std::string model = (directory / "bpe.model").string();
  write_bytes(lines, line);
  write_bytes(directory / "b.txt", "more text");
  std::filesystem::copy(TESSERA_SOURCE_DIR "/tests/golden/tokenizers/bpe.model", model);
  std::filesystem::create_symlink("a.jsonl", directory / "link");
  std::filesystem::create_hard_link(lines, directory / "hard");
  const std::string folder = directory.path().string(), before = read_bytes(model);
  const std::string dotted = (directory / "./a.jsonl").string();
  for (const auto& [output, inputs] :
       std::vector<std::pair<std::string, std::string>>{{lines, lines},
                                                        {dotted, lines},
                                                        {lines, folder},
                                                        {lines, folder + "/*.jsonl"},
                                                        {(directory / "link").string(), lines},
                                                        {(directory / "hard").string(), lines}}) {
    const Result refused = call({"build", "--overwrite", "--output=" + output, inputs});
    CAPTURE(output, inputs, refused.errors);
    REQUIRE(refused.code == 2);
    REQUIRE_THAT(refused.errors, Contains(" is the input ") && Contains("name another output"));
  }
  const std::string text = (directory / "b.txt").string();
  REQUIRE(call({"build", "--overwrite", "--output=" + lines, "--validation=" + lines, text}).code ==
          2);
  REQUIRE(call({"build", "--overwrite", "--output=" + model, "--tokenizer=" + model, text}).code ==
          2);
  write_bytes(directory / "text.model", "text");
  REQUIRE_THAT(call({"train", "--output=" + (directory / "text.model").string(), folder}).errors,
               Contains("is the input"));
  REQUIRE(read_bytes(lines) == line);
  REQUIRE(read_bytes(model) == before);
}

TEST_CASE("an output in a store and unknown schemes are refused, and ~ is the home directory") {
  const TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  const char* const home = std::getenv("HOME");
  const std::string saved = home == nullptr ? "" : home;
  ::setenv("HOME", directory.path().c_str(), 1);
  std::filesystem::create_directories(directory / "work");
  std::filesystem::current_path(directory / "work");
  write_bytes(directory / "in/a.txt", "some text of a few words");
  write_bytes(directory / "in/photo", std::string("\0", 1));
  std::vector<Result> refused;
  for (const char* remote :
       {"gs://b/x", "s3://b/x", "hf://datasets/x", "https://e.org/x", "file:///x"})
    refused.push_back(call({"build", "~/in", std::string("--output=") + remote}));
  for (const char* flag : {"--tokenizer=", "--validation=", ""})
    refused.push_back(call({"build", "--output=t.h5", "~/in", std::string(flag) + "file:///x"}));
  const Result built = call({"build", "--output=~/out.h5", "~/in"});
  const bool is_clean = std::filesystem::is_empty(".");
  std::filesystem::current_path(before);
  ::setenv("HOME", saved.c_str(), 1);
  for (const Result& result : refused) {
    CAPTURE(result.errors);
    REQUIRE(result.code == 2);
  }
  REQUIRE_THAT(refused[0].errors,
               Contains("--output gs://b/x: gs:// is not a path of this machine") &&
                   Contains("hf download"));
  for (const Result& result : std::span(refused).subspan(5))
    REQUIRE_THAT(result.errors, Contains("no store has the scheme file://"));
  REQUIRE(is_clean);
  REQUIRE(built.code == 0);
  REQUIRE_THAT(built.errors, Contains("left out: binary: 1 (") && Contains("in/photo)"));
  REQUIRE(std::filesystem::exists(directory / "out.h5"));
}

TEST_CASE("FIFOs and devices are refused without blocking") {
  const TemporaryDirectory directory;
  const std::string fifo = (directory / "fifo.model").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  write_bytes(directory / "t.txt", "text");
  const std::string text = (directory / "t.txt").string();
  const std::string output = "--output=" + (directory / "t.h5").string();
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Result result = call(arguments);
    REQUIRE(result.code == 1);
    REQUIRE_THAT(result.errors, Contains(why));
  };
  refused({"build", output, fifo}, "fifo.model: expected a regular file, got a FIFO");
  refused({"build", output, "/dev/zero"}, "/dev/zero: expected a regular file, got a device");
  refused({"build", output, "--tokenizer=" + fifo, text},
          "fifo.model: expected a regular file, got a FIFO");
  refused({"inspect", fifo}, "fifo.model: expected a regular file, got a FIFO");
  std::filesystem::create_symlink("/dev/zero", directory / "zero.json");
  refused({"build", output, "--tokenizer=" + (directory / "zero.json").string(), text},
          "zero.json: expected a regular file, got a device");
}

TEST_CASE("bad data exits with 1 and a message") {
  const TemporaryDirectory directory;
  write_bytes(directory / "t.txt", "text");
  const std::string text = (directory / "t.txt").string();
  const auto failed = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Result result = call(arguments);
    CAPTURE(why, result.errors);
    REQUIRE(result.code == 1);
    REQUIRE_THAT(result.errors, Contains(why));
  };
  failed({"inspect", text}, "not an HDF5 file");
  failed({"inspect", "none.h5"}, "no such file");
  failed({"build", "--output=/nowhere/t.h5", text}, "cannot create");
  failed({"build", "--output=" + (directory / "t.h5").string(), "none.txt"}, "no such file");
  failed({"build", "--output=" + (directory / "t.h5").string(), "--tokenizer=byts", text},
         "did you mean 'bytes'");
  // Start marks that contradict seq_starts.
  Hdf5File file = Hdf5File::create(directory / "bad.h5");
  const std::vector<uint32_t> tokens = {3, 5, 4};
  const std::vector<uint64_t> starts = {0, 2, 3};
  file.create_dataset("train/encoded_tokens", StoredType::kU32, {3})
      .write(std::as_bytes(std::span(tokens)));
  file.create_dataset("train/seq_starts", StoredType::kU64, {3})
      .write(std::as_bytes(std::span(starts)));
  file.set_attribute("train", "format_version", int64_t{1});
  file.set_attribute("train", "max_token_id", int64_t{2});
  file.set_attribute("train", "vocab_size", int64_t{3});
  file.set_attribute("train", "tokenizer", "x");
  file.set_attribute("train", "tokenizer_fingerprint", "x");
  file.close();
  failed({"inspect", (directory / "bad.h5").string()}, "token 1 and seq_starts disagree");
}

}  // namespace
}  // namespace tessera
