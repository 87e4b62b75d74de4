// SPDX-License-Identifier: Apache-2.0
// flat_tokens build.
#include <filesystem>
#include <thread>

#include <fmt/ostream.h>

#include "inputs/building/token_build.h"
#include "inputs/commands/command.h"
#include "inputs/commands/interruption.h"
#include "inputs/commands/output.h"
#include "inputs/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kBuildUsage =
    R"(  flat_tokens build --output=FILE [options] PATH...
      Makes a flat-tokens file. PATH is a file, a folder or a pattern ('c4/*.json.gz'): text,
      lines of JSON (.jsonl, .json), either compressed (.gz, .zst), or tokens (.bin of nanoGPT
      and llm.c). If it is stopped or killed, the same command goes on.
      --tokenizer=bytes           bytes (byte b is token b + 1), or a tokenizer's file
      --format=auto               of all PATHs: auto (by name), text, jsonl or bin
      --text_field=text           of lines of JSON
      --separator=TEXT            parts a text into documents; else each file is one
      --end_of_document=auto      put the tokenizer's end token behind each: auto or none
      --validation_fraction=0.1   held out: the tail of one text, whole texts of several, else
                                  documents, by a hash of each; where these are far fewer or
                                  more than that, the last tokens of all
      --validation=PATH           held out instead: these files
      --max_tokens=N              of each split; the rest is left out
      --broken=fail               documents that cannot be read: fail or skip (they are counted)
      --encoding=utf8             of text: utf8, or any (bytes as they are)
      --max_document_bytes=N      longer ones are broken; 1073741824 unless told
      --end_id=N                  of .bin: ends its documents; the tokenizer's unless told
      --vocab_size=N              of .bin whose tokenizer is not at hand
      --overwrite                 replace an output that another tokenizer made
      --threads=N                 all processors unless told; the output is the same
      --compression=0             deflate level, 0 to 9
)";

const std::vector<std::string> kFlags = {
    "output",          "tokenizer",           "format", "text_field", "separator",
    "end_of_document", "validation",          "broken", "max_tokens", "max_document_bytes",
    "encoding",        "validation_fraction", "end_id", "threads",    "vocab_size",
    "compression"};

constexpr int64_t kMost = int64_t{1} << 60;
constexpr int64_t kMostBuiltIds = int64_t{1} << 31;

ReadOptions read_options(const Arguments& arguments) {
  ReadOptions read;
  read.text_field = arguments.text("text_field", read.text_field);
  read.separator = arguments.text("separator", "");
  read.broken = arguments.choice("broken", {"fail", "skip"}) == 0 ? BrokenDocuments::kFail
                                                                  : BrokenDocuments::kSkip;
  read.require_utf8 = arguments.choice("encoding", {"utf8", "any"}) == 0;
  read.max_document_bytes =
      arguments.number<int64_t>("max_document_bytes", read.max_document_bytes, 1, int64_t{1} << 40);
  return read;
}

// With --vocab_size there is none, and only tokens can be read.
std::unique_ptr<Tokenizer> find_tokenizer(const Arguments& arguments, TokenizerIdentity* identity) {
  if (!arguments.has("vocab_size")) {
    auto tokenizer = make_tokenizer(arguments.text("tokenizer", "bytes"));
    *identity = identity_of(*tokenizer);
    return tokenizer;
  }
  if (arguments.has("tokenizer"))
    throw UsageError("--vocab_size is for tokens without a --tokenizer; give one of them");
  *identity = unknown_tokenizer(arguments.number<int64_t>("vocab_size", 0, 1, kMostBuiltIds));
  return nullptr;
}

BuildInputs find_inputs(const Arguments& arguments, const TokenBuild& build) {
  using Format = BuildInputOptions::Format;
  BuildInputOptions options;
  options.format =
      static_cast<Format>(arguments.choice("format", {"auto", "text", "jsonl", "bin"}));
  options.validation_fraction = build.validation_fraction;
  if (arguments.has("validation")) options.validation = {arguments.text("validation", "")};
  options.texts_are_parted = !build.read.separator.empty();
  options.tokens_are_parted = build.end_of_tokens.has_value();
  BuildInputs inputs = find_build_inputs(arguments.paths, options);
  for (const BuildInput& input : inputs.inputs) {
    const bool is_tokens = input.kind == SourceKind::kTokens;
    if (is_tokens && !arguments.has("vocab_size") && !arguments.has("tokenizer"))
      throw UsageError(fmt::format(
          "{} holds tokens: --tokenizer=FILE says of which vocabulary, or --vocab_size=N",
          input.path.string()));
    if (!is_tokens && build.tokenizer == nullptr)
      throw UsageError(fmt::format("{} is text, which wants a --tokenizer and no --vocab_size",
                                   input.path.string()));
  }
  return inputs;
}

TokenBuild request_of(const Arguments& arguments, const Tokenizer* tokenizer,
                      const TokenizerIdentity& identity) {
  TokenBuild build;
  build.output = arguments.text("output", "");
  build.tokenizer = tokenizer;
  build.identity = identity;
  build.read = read_options(arguments);
  if (arguments.has("validation") && arguments.has("validation_fraction"))
    throw UsageError("--validation and --validation_fraction exclude each other");
  build.validation_fraction = arguments.number<double>("validation_fraction", 0.1, 0.0, 0.999999);
  build.max_tokens = arguments.number<int64_t>("max_tokens", -1, 1, kMost);
  build.compression = arguments.number<int>("compression", 0, 0, 9);
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  build.threads = arguments.number<int>("threads", processors, 1, 1024);
  const bool has_ends = arguments.choice("end_of_document", {"auto", "none"}) == 0;
  if (has_ends && tokenizer != nullptr) build.document_end = tokenizer->end_id();
  build.end_of_tokens = build.document_end;
  if (arguments.has("end_id")) {
    if (!has_ends) throw UsageError("--end_id and --end_of_document=none exclude each other");
    build.end_of_tokens =
        arguments.number<int32_t>("end_id", 0, 0, static_cast<int32_t>(identity.vocab_size - 1));
  }
  build.from = find_inputs(arguments, build);
  return build;
}

void tell(const TokenBuild& build, const TokenBuilt& built, std::ostream& out) {
  fmt::print(out, "{}: {} training and {} validation tokens of {}\n", build.output.string(),
             built.tokens[kTrain], built.tokens[kValidation], built.description);
  fmt::print(out, "  documents: {} for training, {} for validation", built.documents[kTrain],
             built.documents[kValidation]);
  if (built.left_out.empty > 0) fmt::print(out, "; left out: {} empty", built.left_out.empty);
  fmt::print(out, "\n");
  const SkipCounts& broken = built.left_out.broken;
  if (broken.broken > 0)
    fmt::print(out, "  left out: {} broken; the first: {}\n", broken.broken, broken.first);
}

void run_build(const std::vector<std::string>& words, std::ostream& out, std::ostream& notes) {
  const Arguments arguments = parse_arguments(words, kFlags, {"overwrite"});
  if (!arguments.has("output") || arguments.text("output", "").empty())
    throw UsageError("build wants --output=FILE");
  if (arguments.paths.empty()) throw UsageError("build wants at least one PATH of text");
  TokenizerIdentity identity;
  const auto tokenizer = find_tokenizer(arguments, &identity);
  check_output(arguments, identity);
  TokenBuild build = request_of(arguments, tokenizer.get(), identity);
  const Interruption signal;
  build.stop = signal.flag();
  BuildProgress progress(notes, BuildProgress::detect(notes));
  tell(build, build_tokens(build, progress), out);
}

}  // namespace

Command build_command() { return {"build", std::string(kBuildUsage), run_build}; }

}  // namespace tessera
