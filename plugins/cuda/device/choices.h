// SPDX-License-Identifier: Apache-2.0
// Which of several implementations trials on a GPU have chosen: the algorithm of cuBLASLt that was
// fastest for a product, or the implementation of an attention. As text:
//   tessera kernel choices 1
//   <the choice, one word> <GPU and library>, <what is computed>
//   …
//   crc32c <8 digits: of all bytes before this line>
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "plugins/cuda/device/context.h"

namespace tessera::cuda {

// Choices by what they were made for, one line of text.
using Choices = std::map<std::string, std::string>;

std::string text_of(const Choices& choices);
// Error if the text is damaged.
Choices parsed_choices(const std::string& text);

using AcceptsChoice = std::function<bool(const std::string& choice)>;
using NoteChoice = std::function<void(const std::string& text)>;

void note_on_standard_error(const std::string& text);

// Choices of earlier runs in one file, and of this process. If runs write at the same time, the
// last one wins. A part of contexts. Any thread.
class ChoiceCache {
 public:
  using Choose = std::function<std::optional<std::string>()>;

  explicit ChoiceCache(Context&);  // choice_cache_file()
  // An empty path: nothing is kept on disk. `note` is called at most once.
  explicit ChoiceCache(std::filesystem::path file, NoteChoice note = note_on_standard_error);

  // The choice for `key`. If none is stored, or `accepts` refuses it, `choose` is called and its
  // result is stored. A file that cannot be read or written, or is damaged, is not used, with a
  // note.
  std::optional<std::string> find(const std::string& key, const AcceptsChoice& accepts,
                                  const Choose& choose);

 private:
  void read();
  void write();
  void note(const std::string& why);

  std::filesystem::path file_;
  NoteChoice note_;
  std::mutex mutex_;
  Choices entries_;
  bool noted_ = false;
};

// $XDG_CACHE_HOME or ~/.cache, and in it tessera/kernel_choices; empty if neither is set.
std::filesystem::path choice_cache_file();

// The choices of the run that this process computes for. Choices of its other processes and of its
// directory replace trials, so that all compute the same bits. Any thread.
class RunChoices {
 public:
  explicit RunChoices(NoteChoice note = note_on_standard_error) : note_(std::move(note)) {}

  // The choice for `what` of the GPU and library `where`: the run's, or else that of `choose`,
  // which then is the run's. Notes once that the run has another's choice, or one that is refused
  // here.
  std::string find(const std::string& where, const std::string& what, const AcceptsChoice& accepts,
                   const std::function<std::string()>& choose);

  // Device::share_choices()
  std::string share(const std::string& others);

 private:
  NoteChoice note_;
  std::mutex mutex_;
  Choices choices_;
  bool noted_ = false;
};

// The RunChoices as a part of contexts: one for all GPUs of the process, while it uses any.
struct SharedChoices {
  explicit SharedChoices(Context&);
  std::shared_ptr<RunChoices> run;
};

}  // namespace tessera::cuda
