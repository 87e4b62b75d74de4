// SPDX-License-Identifier: Apache-2.0
#include "inputs/flat_tokens_tool/flat_tokens_tool.h"

#include <algorithm>
#include <csignal>

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include "core/base/printable.h"
#include "core/base/process.h"
#include "core/io/storage/storage.h"

namespace tessera {

Paths read_words(const std::vector<Flag>& flags, const std::vector<std::string>& words) {
  std::vector<std::string> given;
  Paths paths;
  try {
    for (const std::string& word : words)
      if (word.starts_with("--"))
        given.push_back(word);
      else
        paths.emplace_back(path_or_url(word, "PATH"));
    read_flags(flags, split_flags(flags, given));
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  return paths;
}

void check_not_an_input(const std::filesystem::path& output,
                        const std::vector<std::filesystem::path>& inputs) {
  std::error_code ignored;
  for (const std::filesystem::path& input : inputs)
    if (std::filesystem::equivalent(output, input, ignored))
      throw UsageError(
          fmt::format("--output={} is the input {}, which it would replace; name another output",
                      output.string(), input.string()));
}

// Protects an existing file against a mistyped --output.
void check_output(const std::filesystem::path& output, const TokenizerIdentity& identity) {
  if (!std::filesystem::exists(output)) return;
  std::string tokenizer, fingerprint;
  try {
    const std::vector<std::string> splits = FlatTokensReader::splits(output);
    if (splits.empty()) fail("no splits");
    const FlatTokensReader reader(output, splits[0]);
    tokenizer = reader.tokenizer_name();
    fingerprint = reader.tokenizer_fingerprint();
  } catch (const std::exception& error) {
    throw UsageError(
        fmt::format("--output={} exists and is not a token file ({}); --overwrite replaces it",
                    output.string(), error.what()));
  }
  if (fingerprint != identity.fingerprint)
    throw UsageError(fmt::format(
        "--output={} exists and was made with {}; --overwrite replaces it", output.string(),
        tokenizer == identity.name
            ? fmt::format("another version of the tokenizer '{}'", tokenizer)
            : fmt::format("the tokenizer '{}', not with '{}'", tokenizer, identity.name)));
}

namespace {

std::atomic<bool> stop_was_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // Required in a signal handler.

void ask_to_stop(int signal) {
  stop_was_asked = true;
  std::signal(signal, SIG_DFL);
}

void dispatch(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& notes) {
  const std::vector<FlatTokensCommand> commands = {
      build_command(), inspect_command(), import_command(), export_command(), train_command()};
  std::vector<std::string> names;
  for (const FlatTokensCommand& command : commands) names.push_back(command.name);
  if (arguments.empty())
    throw UsageError(fmt::format("expected a command: {}", fmt::join(names, ", ")));
  const auto chosen = std::ranges::find(commands, arguments[0], &FlatTokensCommand::name);
  const auto asks = [&](const char* flag) {
    return std::ranges::find(arguments, flag) != arguments.end();
  };
  if (arguments[0] == "help" || asks("--help") || asks("-h")) {
    for (const FlatTokensCommand& command : commands)
      if (chosen == commands.end() || chosen->name == command.name)
        fmt::print(out, "flat_tokens {}\n\n{}\n{}\n", command.usage, wrapped(command.about, 2),
                   command.flags_help);
  } else if (chosen == commands.end()) {
    throw UsageError(
        fmt::format("no command '{}'{}", arguments[0], did_you_mean(arguments[0], names)));
  } else {
    chosen->run({arguments.begin() + 1, arguments.end()}, {out, notes});
  }
}

}  // namespace

Interruption::Interruption() {
  stop_was_asked = false;
  for (const int signal : kStopSignals)  // nohup ignores SIGHUP.
    if (std::signal(signal, ask_to_stop) == SIG_IGN) std::signal(signal, SIG_IGN);
}

Interruption::~Interruption() {
  for (const int signal : kStopSignals)
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
}

const std::atomic<bool>* Interruption::flag() const { return &stop_was_asked; }

int run_flat_tokens(const std::vector<std::string>& arguments, std::ostream& out,
                    std::ostream& errors) {
  try {
    dispatch(arguments, out, errors);
    const std::string loss = flush_standard_output();
    if (!loss.empty()) fail("cannot write to standard output: {}", loss);
    return 0;
  } catch (const UsageError& error) {
    fmt::print(errors, "flat_tokens: {}; see flat_tokens --help\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(errors, "flat_tokens: {}\n", error_text(error));
    return 1;
  }
}

}  // namespace tessera
