// SPDX-License-Identifier: Apache-2.0
// Compares byte-level BPE tokenizers with those that `tokenizers` trained on the same texts
// (tests/golden/train_tokenizers.py).
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/io/file.h"
#include "core/io/json.h"
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"
#include "inputs/shuffle.h"
#include "inputs/tokenizers/byte_bpe_trainer.h"
#include "inputs/tokenizers/make_tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"
#include "tests/support/temporary_directory.h"

namespace tessera {
namespace {

using Catch::Contains;
using Catch::EndsWith;

const std::filesystem::path kFolder = TESSERA_SOURCE_DIR "/tests/golden/trained_tokenizers";

struct TrainResult {
  int code = 0;
  std::string out, errors;
};

TrainResult train(std::vector<std::string> words) {
  words.insert(words.begin(), "train");
  std::ostringstream out, errors;
  const int code = run_flat_tokens(words, out, errors);
  return {code, out.str(), errors.str()};
}

std::vector<std::string> trained_texts() {
  std::vector<std::string> texts;
  std::istringstream lines(read_file(kFolder / "texts.jsonl"));
  for (std::string line; std::getline(lines, line);)
    texts.push_back(parse_json(line, "texts.jsonl").at("text").as_string());
  return texts;
}

TEST_CASE("a trained tokenizer.json is that of tokenizers, for any number of threads") {
  const TemporaryDirectory directory;
  const std::string output = (directory / "t.json").string();
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"cl100k", {"--vocab_size=440"}},
      {"gpt2",
       {"--vocab_size=380", "--pattern=gpt2", "--special_tokens=<|endoftext|>",
        "--special_tokens=hello"}},
      {"all", {"--vocab_size=100000"}}};
  for (const auto& [name, flags] : cases)
    for (const char* threads : {"--threads=1", "--threads=3"}) {
      CAPTURE(name, threads);
      std::vector<std::string> words = flags;
      words.insert(words.end(),
                   {threads, "--output=" + output, (kFolder / "texts.jsonl").string()});
      const TrainResult result = train(words);
      REQUIRE(result.errors.empty());
      REQUIRE(result.code == 0);
      REQUIRE_THAT(result.out, EndsWith(" distinct words of 11 documents\n"));
      REQUIRE((result.out.find("(no pair is left to merge)") != std::string::npos) ==
              (name == "all"));
      REQUIRE(read_file(output) == read_file(kFolder / (name + ".json")));
    }
}

TEST_CASE("a trained tokenizer is lossless and knows the end of documents") {
  const auto tokenizer = make_tokenizer((kFolder / "cl100k.json").string());
  REQUIRE(tokenizer->vocab_size() == 440);
  REQUIRE(tokenizer->end_id() == 0);
  for (const std::string& text : trained_texts())
    REQUIRE(tokenizer->decode(tokenizer->encode(text)) == text);
}

TEST_CASE("beside tokenizer.json there is what AutoTokenizer reads of special tokens") {
  const TemporaryDirectory directory;
  const std::string text = (kFolder / "texts.jsonl").string();
  const auto settings = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"--output=" + (directory / "tokenizer.json").string(), text,
                                      "--vocab_size=300"};
    words.insert(words.end(), flags.begin(), flags.end());
    REQUIRE(train(words).code == 0);
    return read_file(directory / "tokenizer_config.json");
  };
  REQUIRE_THAT(settings({}), Contains(R"("tokenizer_class": "PreTrainedTokenizerFast")") &&
                                 Contains(R"("bos_token": "<|endoftext|>")") &&
                                 Contains(R"("eos_token": "<|endoftext|>")"));
  REQUIRE_THAT(settings({"--special_tokens=<s>", "--special_tokens=</s>"}),
               Contains(R"("bos_token": "<s>", "eos_token": "</s>")"));
  const auto tokenizer = make_tokenizer(directory.path().string());
  REQUIRE(tokenizer->start_id() == 0);
  REQUIRE(tokenizer->end_id() == 1);
  const TemporaryDirectory other;
  REQUIRE(train({"--output=" + (other / "t.json").string(), text}).code == 0);
  REQUIRE(!std::filesystem::exists(other / "tokenizer_config.json"));
}

TEST_CASE("AutoTokenizer reads a trained tokenizer with its special tokens", "[full]") {
  const std::string python = python_with("transformers");
  if (python.empty()) {
    WARN("skipped: no Python with transformers ($TESSERA_PYTHON names one)");
    return;
  }
  const TemporaryDirectory directory;
  REQUIRE(train({"--output=" + (directory / "tokenizer.json").string(), "--special_tokens=<s>",
                 "--special_tokens=</s>", (kFolder / "texts.jsonl").string()})
              .code == 0);
  write_bytes(directory / "read.py",
              "import sys\nfrom transformers import AutoTokenizer\n"
              "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
              "assert (t.bos_token_id, t.eos_token_id) == (0, 1), t\n"
              "assert t.decode(t.encode('a text')) == 'a text'\n");
  REQUIRE(std::system(fmt::format("HF_HUB_OFFLINE=1 {} {} {} 2>/dev/null", python,
                                  (directory / "read.py").string(), directory.path().string())
                          .c_str()) == 0);
}

TEST_CASE("SIGINT during the training of a tokenizer leaves no file") {
  for (const char* name : {"tokenizer.json", "t.model"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    std::string text;
    for (uint64_t i = 0; text.size() < (size_t{8} << 20); ++i)
      text += fmt::format("{:x}{}", mix_bits(i, 1), i % 9 == 0 ? '\n' : ' ');
    write_bytes(directory / "t.txt", text);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);  // Catch2 has its own handler.
      ::_exit(train({"--output=" + (directory / name).string(), "--vocab_size=20000",
                     (directory / "t.txt").string()})
                  .code);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    REQUIRE(::kill(child, SIGINT) == 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGINT);
    std::filesystem::remove(directory / "t.txt");
    REQUIRE(std::filesystem::is_empty(directory.path()));
  }
}

ByteBpe trained_on(const WordCounts& counts, int64_t merges, int64_t min_frequency = 0) {
  return train_byte_bpe(counts, {.vocab_size = 256 + merges, .min_frequency = min_frequency});
}

std::vector<std::string> new_tokens(const ByteBpe& model) {
  return {model.vocabulary.begin() + 256, model.vocabulary.end()};
}

TEST_CASE("ties are decided by the ids of the pair, and overlapping pairs merge from the left") {
  using Tokens = std::vector<std::string>;
  REQUIRE(new_tokens(trained_on({{"xy", 2}, {"ab", 2}, {"ba", 2}}, 2)) == Tokens{"ab", "ba"});
  REQUIRE(new_tokens(trained_on({{"aaaaa", 1}}, 9)) == Tokens{"aa", "aaa", "aaaaa"});
  REQUIRE(new_tokens(trained_on({{"xy", 5}, {"ab", 4}, {"cd", 3}}, 9, 4)) == Tokens{"xy", "ab"});
  REQUIRE(new_tokens(trained_on({{"a", 7}}, 9)).empty());
}

TEST_CASE("a word of a megabyte takes no longer than many words") {
  WordCounts counts = {{std::string(1 << 20, 'a'), 1}, {"ab", 3}};
  REQUIRE(trained_on(counts, 9).vocabulary.back().size() == 512);
}

TEST_CASE("flat_tokens train refuses what gives no byte-level tokenizer") {
  const TemporaryDirectory directory;
  const std::string output = "--output=" + (directory / "t.json").string();
  const std::string text = (kFolder / "texts.jsonl").string();
  const auto refused = [&](const std::vector<std::string>& words, int code) {
    const TrainResult result = train(words);
    REQUIRE(result.code == code);
    REQUIRE(!std::filesystem::exists(directory / "t.json"));
    return result.errors;
  };
  REQUIRE_THAT(
      refused({output, "--vocab_size=257", "--special_tokens=a", "--special_tokens=b", text}, 2),
      Contains("--vocab_size=257: expected at least 258: 256 bytes and 2 special tokens"));
  REQUIRE_THAT(refused({output, "--vocab_size=200", text}, 2), Contains("257"));
  REQUIRE_THAT(refused({output, "--special_tokens=a", "--special_tokens=a", text}, 2),
               Contains("given twice"));
  REQUIRE_THAT(refused({output, "--model=bpe", text}, 2),
               Contains("--model is of --output=FILE.model only, got --output="));
  REQUIRE_THAT(refused({"--output=t.model", "--pattern=gpt2", text}, 2),
               Contains("--pattern is of --output=FILE.json only, got --output=t.model"));
  REQUIRE_THAT(refused({output, "--pattern=gpt3", text}, 2), Contains("did you mean 'gpt2'?"));
  REQUIRE_THAT(refused({output, (directory / "absent.txt").string()}, 1), Contains("absent.txt"));
  write_bytes(directory / "bad.jsonl", "{\"text\": \"good\"}\n{\"text\": 1}\n");
  REQUIRE_THAT(refused({output, (directory / "bad.jsonl").string()}, 1), Contains("bad.jsonl:2"));
  write_bytes(directory / "empty.txt", "");
  REQUIRE_THAT(refused({output, (directory / "empty.txt").string()}, 1), Contains("no text"));
}

}  // namespace
}  // namespace tessera
