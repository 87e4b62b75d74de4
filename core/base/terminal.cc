// SPDX-License-Identifier: Apache-2.0
#include "core/base/terminal.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <streambuf>
#include <string>
#include <utility>

#include "core/base/printable.h"

namespace tessera {
namespace {

// Passes text on when it is flushed, and at the end of each line: characters are then complete.
class PrintableBuffer final : public std::streambuf {
 public:
  explicit PrintableBuffer(std::streambuf* to) : to_(to) {}

  bool clear_line() {
    return pass_on() && to_->sputn(kClearLine.data(), std::ssize(kClearLine)) > 0;
  }

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    text_ += traits_type::to_char_type(c);
    return text_.back() != '\n' || pass_on() ? c : traits_type::eof();
  }
  int sync() override { return pass_on() && to_->pubsync() == 0 ? 0 : -1; }

 private:
  bool pass_on() {
    const std::string shown = printable(std::exchange(text_, {}));
    return to_->sputn(shown.data(), std::ssize(shown)) == std::ssize(shown);
  }

  std::streambuf* to_;
  std::string text_;
};

}  // namespace

void escape_standard_streams() {
  // Never deleted: the library flushes these streams at the end of the program.
  for (std::ostream* stream : {&std::cout, &std::cerr})
    stream->rdbuf(new PrintableBuffer(stream->rdbuf()));  // NOLINT(cppcoreguidelines-owning-memory)
}

bool rewrites_lines(int descriptor) {
  const char* const terminal = std::getenv("TERM");
  const bool is_dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  const bool is_copied = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  return ::isatty(descriptor) != 0 && !is_dumb && !is_copied;
}

void clear_line(std::ostream& out) {
  if (auto* const buffer = dynamic_cast<PrintableBuffer*>(out.rdbuf()))
    buffer->clear_line();
  else
    out << kClearLine;
}

void print_error(std::string_view line) {
  std::fputs((printable(line) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace tessera
