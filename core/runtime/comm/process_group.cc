// SPDX-License-Identifier: Apache-2.0
// Every agreement is one round: each process sends what it brings to process 0, which sends the
// outcome to all. A round of small texts is one message each way.
#include "core/runtime/comm/process_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/error.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Process 0 reports who is missing; the others give it this long to do so.
constexpr Milliseconds kLeadersGrace{2000};

enum class Wants : uint64_t { kMaximum, kFirst, kAll };

struct Head {
  uint64_t round = 0;
  int64_t value = 0;
  uint64_t failed = 0;
  uint64_t what_bytes = 0;
  uint64_t text_bytes = 0;
};

// The first message of each has this size; what does not fit follows.
constexpr size_t kFirstBytes = 512;
constexpr size_t kFirstText = kFirstBytes - sizeof(Head);

// A text under way and its messages, which may outlive the round if nobody answers.
struct Letter {
  Head head;
  std::string body;  // what, then text.
  std::array<std::byte, kFirstBytes> first{};
  std::vector<std::unique_ptr<Message>> messages;

  std::string what() const { return body.substr(0, head.what_bytes); }
  std::string text() const { return body.substr(head.what_bytes); }
};

bool wait_all(const Letter& letter, Patience& patience) {
  patience.resume();
  return std::all_of(letter.messages.begin(), letter.messages.end(), [&](const auto& message) {
    while (!message->wait_until(patience.next_look()))
      if (patience.look()) return false;
    return true;
  });
}

std::shared_ptr<Letter> send_letter(Transport& transport, int to, uint64_t tag, Head head,
                                    std::string_view what, std::string_view text) {
  auto letter = std::make_shared<Letter>();
  head.what_bytes = what.size();
  head.text_bytes = text.size();
  letter->head = head;
  letter->body = std::string(what) + std::string(text);
  const size_t in_first = std::min(letter->body.size(), kFirstText);
  std::memcpy(letter->first.data(), &head, sizeof(Head));
  std::memcpy(letter->first.data() + sizeof(Head), letter->body.data(), in_first);
  letter->messages.push_back(transport.send(to, tag, letter->first));
  if (in_first < letter->body.size())
    letter->messages.push_back(
        transport.send(to, tag, std::as_bytes(std::span(letter->body).subspan(in_first))));
  return letter;
}

std::shared_ptr<Letter> expect_letter(Transport& transport, int from, uint64_t tag) {
  auto letter = std::make_shared<Letter>();
  letter->messages.push_back(transport.receive(from, tag, letter->first));
  return letter;
}

// Waits for a letter that is expected; false if it does not come by then.
bool read_letter(Transport& transport, int from, uint64_t tag, Letter& letter, Patience& patience) {
  if (!wait_all(letter, patience)) return false;
  std::memcpy(&letter.head, letter.first.data(), sizeof(Head));
  letter.body.resize(letter.head.what_bytes + letter.head.text_bytes);
  const size_t in_first = std::min(letter.body.size(), kFirstText);
  std::memcpy(letter.body.data(), letter.first.data() + sizeof(Head), in_first);
  if (in_first == letter.body.size()) return true;
  letter.messages.push_back(transport.receive(
      from, tag, std::as_writable_bytes(std::span(letter.body).subspan(in_first))));
  return wait_all(letter, patience);
}

// Texts in a row, each with its length before it.
std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof(size));
    packed += text;
  }
  return packed;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    uint64_t size = 0;
    CHECK(packed.size() >= sizeof(size));
    std::memcpy(&size, packed.data(), sizeof(size));
    packed.remove_prefix(sizeof(size));
    CHECK(packed.size() >= size);
    texts.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return texts;
}

double seconds(Milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

struct ProcessGroup::Contribution {
  Wants wants = Wants::kMaximum;
  std::string what;
  std::string text;
  int64_t value = 0;
  bool failed = false;
};

// What came out of a round.
struct ProcessGroup::Round {
  bool failed = false;
  int64_t value = 0;               // The largest; of the failing ones if the round failed.
  std::vector<std::string> texts;  // Process 0's, or all, or each one's error.
};

ProcessGroup::ProcessGroup(std::shared_ptr<Transport> transport, Milliseconds timeout,
                           uint64_t channel)
    : transport_(std::move(transport)),
      timeout_(timeout),
      tag_(kAgreementTags + channel),
      own_waits_(waits_.add([this](Milliseconds least) { return stalled(least); })) {}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const { return transport_ ? transport_->rank() : 0; }
int ProcessGroup::size() const { return transport_ ? transport_->size() : 1; }

std::string ProcessGroup::host(int rank) const { return transport_ ? transport_->host(rank) : ""; }

std::string ProcessGroup::name(int rank) const {
  if (!transport_) return "this process";
  return fmt::format("process {} (host {})", rank, transport_->host(rank));
}

void ProcessGroup::note_waiting(int other, const std::string& what) {
  const std::lock_guard lock(waiting_mutex_);
  awaited_ = other;
  if (other >= 0) awaited_at_ = what;
  awaited_since_ = Clock::now();
}

std::string ProcessGroup::stalled(Milliseconds least) const {
  const std::lock_guard lock(waiting_mutex_);
  if (awaited_ < 0 || Clock::now() - awaited_since_ < least) return "";
  return fmt::format("{} waits at '{}' for {}", name(rank()), awaited_at_, name(awaited_));
}

std::string ProcessGroup::whereabouts() const {
  const std::lock_guard lock(waiting_mutex_);
  if (awaited_ >= 0)
    return fmt::format("{} waits at '{}' for {}", name(rank()), awaited_at_, name(awaited_));
  return fmt::format("{} is busy since '{}' and waits for no other", name(rank()),
                     awaited_at_.empty() ? "its start" : awaited_at_);
}

// Process 0's side of a round.
ProcessGroup::Round ProcessGroup::lead(Contribution mine, Milliseconds timeout) {
  Patience patience(timeout);
  const int count = size();
  std::vector<std::shared_ptr<Letter>> letters(static_cast<size_t>(count));
  for (int rank = 1; rank < count; ++rank)
    letters[static_cast<size_t>(rank)] = expect_letter(*transport_, rank, tag_);

  Round round{.failed = mine.failed, .value = mine.value};
  std::vector<std::string> texts{mine.text};
  std::vector<std::string> errors{mine.failed ? mine.text : ""};
  std::string missing, astray;
  std::vector<int> present;
  for (int rank = 1; rank < count; ++rank) {
    Letter& letter = *letters[static_cast<size_t>(rank)];
    note_waiting(rank, mine.what);
    const bool came = read_letter(*transport_, rank, tag_, letter, patience);
    texts.push_back(came ? letter.text() : "");
    errors.emplace_back(came && letter.head.failed != 0 ? letter.text() : "");
    if (!came) {
      missing += (missing.empty() ? "" : ", ") + name(rank);
      never_waited_.push_back(letters[static_cast<size_t>(rank)]);
      continue;
    }
    present.push_back(rank);
    if (letter.head.failed != 0) {
      round.value = std::max(round.failed ? round.value : 0, letter.head.value);
      round.failed = true;
    } else if (!round.failed) {
      round.value = std::max(round.value, letter.head.value);
      if (letter.what() != mine.what || letter.head.round != round_)
        astray = fmt::format("{} is at '{}' and {} at '{}': they have gone different ways",
                             name(rank), letter.what(), name(0), mine.what);
    }
  }
  note_waiting(-1, "");
  // Whoever failed says why others are missing or astray.
  if (!round.failed && !missing.empty()) {
    broken_ = fmt::format("{} did not come to '{}' within {:g} s: stopped, dead or much slower{}",
                          missing, mine.what, seconds(timeout), patience.held_up());
  } else if (!round.failed && !astray.empty()) {
    broken_ = astray;
  }
  if (!broken_.empty()) {
    round.failed = true;
    round.value = 1;
    errors[0] = broken_;
  }
  round.texts = round.failed ? errors : texts;
  if (!round.failed && mine.wants == Wants::kFirst) round.texts.resize(1);
  if (!round.failed && mine.wants == Wants::kMaximum) round.texts.clear();

  const Head head{.round = round_, .value = round.value, .failed = round.failed ? 1u : 0u};
  std::vector<std::shared_ptr<Letter>> answers;
  for (const int rank : present)
    answers.push_back(send_letter(*transport_, rank, tag_, head, "", pack(round.texts)));
  Patience sending(timeout + kLeadersGrace);
  for (const std::shared_ptr<Letter>& answer : answers)
    if (!wait_all(*answer, sending)) never_waited_.push_back(answer);
  if (round.failed && !missing.empty() && broken_.empty())
    broken_ = fmt::format("{} did not come to hear of a failure", missing);
  return round;
}

// Every other process's.
ProcessGroup::Round ProcessGroup::follow(const Contribution& mine, Milliseconds timeout) {
  Patience patience(timeout + kLeadersGrace);
  const Head head{.round = round_, .value = mine.value, .failed = mine.failed ? 1u : 0u};
  note_waiting(0, mine.what);
  const auto question = send_letter(*transport_, 0, tag_, head, mine.what, mine.text);
  const auto answer = expect_letter(*transport_, 0, tag_);
  if (!wait_all(*question, patience) || !read_letter(*transport_, 0, tag_, *answer, patience)) {
    never_waited_.push_back(question);
    never_waited_.push_back(answer);
    broken_ = fmt::format(
        "{} did not answer at '{}' within {:g} s: stopped, dead, or waiting for another{}", name(0),
        mine.what, seconds(timeout), patience.held_up());
    fail("{}", broken_);
  }
  note_waiting(-1, "");
  return {.failed = answer->head.failed != 0,
          .value = answer->head.value,
          .texts = unpack(answer->text())};
}

ProcessGroup::Round ProcessGroup::agree(Contribution mine, Milliseconds timeout) {
  if (failure_ || !broken_.empty())
    fail("nothing more can be agreed on{}{}", broken_.empty() ? "" : ": ", broken_);
  ++round_;
  Round round = rank() == 0 ? lead(std::move(mine), timeout) : follow(mine, timeout);
  if (round.failed) failure_ = {.errors = round.texts, .exit_code = static_cast<int>(round.value)};
  return round;
}

namespace {

// Of a process that had no error of its own.
[[noreturn]] void fail_with(const SharedFailure& failure, const ProcessGroup& processes) {
  const auto first = std::find_if(failure.errors.begin(), failure.errors.end(),
                                  [](const std::string& error) { return !error.empty(); });
  CHECK(first != failure.errors.end());
  const int rank = static_cast<int>(first - failure.errors.begin());
  if (rank == processes.rank()) fail("{}", *first);
  fail("{} failed: {}", processes.name(rank), *first);
}

}  // namespace

void ProcessGroup::barrier(std::string_view what) { all_reduce_max(0, what); }

int64_t ProcessGroup::all_reduce_max(int64_t value, std::string_view what) {
  if (size() == 1) return value;
  const Round round = agree({.what = std::string(what), .value = value}, timeout_);
  if (round.failed) fail_with(*failure_, *this);
  return round.value;
}

std::string ProcessGroup::broadcast(std::string text, std::string_view what) {
  if (size() == 1) return text;
  if (rank() != 0) text.clear();
  Round round =
      agree({.wants = Wants::kFirst, .what = std::string(what), .text = std::move(text)}, timeout_);
  if (round.failed) fail_with(*failure_, *this);
  return std::move(round.texts.at(0));
}

std::vector<std::string> ProcessGroup::gather(std::string text, std::string_view what) {
  if (size() == 1) return {std::move(text)};
  Round round =
      agree({.wants = Wants::kAll, .what = std::string(what), .text = std::move(text)}, timeout_);
  if (round.failed) fail_with(*failure_, *this);
  return std::move(round.texts);
}

std::optional<SharedFailure> ProcessGroup::fail_together(const std::string& error, int exit_code,
                                                         Milliseconds patience) {
  if (size() == 1) return SharedFailure{{error}, exit_code};
  if (failure_ && broken_.empty()) return failure_;
  if (!broken_.empty()) return std::nullopt;
  try {
    agree({.what = "a failure", .text = error, .value = exit_code, .failed = true}, patience);
  } catch (const Error&) {
    return std::nullopt;
  }
  return broken_.empty() ? failure_ : std::nullopt;
}

}  // namespace tessera
