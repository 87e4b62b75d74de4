// SPDX-License-Identifier: Apache-2.0
// Each collective is one round: every process sends its contribution to process 0 (the leader),
// which sends the result to all others (the peers). With short texts that is one message each way.
// MPI's collectives are not sufficient: a process that fails must be able to join any collective of
// the others, and the leader must report missing processes.
#include "core/runtime/comm/process_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <span>

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/message.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Extra wait of the other processes for the leader's report of which processes are missing.
constexpr Milliseconds kReportGrace{2000};

struct PacketHeader {
  uint64_t round = 0;
  int64_t value = 0;
  uint64_t failed = 0;
  uint64_t what_bytes = 0;
  uint64_t text_bytes = 0;
};

// The first message of a packet has this size; a second one has the rest, if any.
constexpr size_t kFirstBytes = 512;
constexpr size_t kFirstText = kFirstBytes - sizeof(PacketHeader);

// A message of two texts in transfer. It outlives the round if it is not answered.
struct Packet {
  PacketHeader header;
  std::string body;  // what, then text.
  std::array<std::byte, kFirstBytes> first{};
  std::vector<std::unique_ptr<Request>> requests;

  std::string what() const { return body.substr(0, header.what_bytes); }
  std::string text() const { return body.substr(header.what_bytes); }
};

bool wait_all(const Packet& packet, WaitDeadline& deadline) {
  deadline.resume();
  return std::ranges::all_of(packet.requests, [&](const auto& request) {
    while (!request->wait_until(deadline.next_poll()))
      if (deadline.poll()) return false;
    return true;
  });
}

std::shared_ptr<Packet> send_packet(Transport& transport, int to, int tag, PacketHeader header,
                                    std::string_view what, std::string_view text) {
  auto packet = std::make_shared<Packet>();
  header.what_bytes = what.size();
  header.text_bytes = text.size();
  packet->header = header;
  packet->body = std::string(what) + std::string(text);
  const size_t in_first = std::min(packet->body.size(), kFirstText);
  std::memcpy(packet->first.data(), &header, sizeof(PacketHeader));
  std::memcpy(packet->first.data() + sizeof(PacketHeader), packet->body.data(), in_first);
  packet->requests.push_back(transport.send(to, tag, packet->first));
  if (in_first < packet->body.size())
    packet->requests.push_back(
        transport.send(to, tag, std::as_bytes(std::span(packet->body).subspan(in_first))));
  return packet;
}

std::shared_ptr<Packet> post_receive(Transport& transport, int from, int tag) {
  auto packet = std::make_shared<Packet>();
  packet->requests.push_back(transport.receive(from, tag, packet->first));
  return packet;
}

// Completes a posted receive; false if the deadline passes before.
bool receive_packet(Transport& transport, int from, int tag, Packet& packet,
                    WaitDeadline& deadline) {
  if (!wait_all(packet, deadline)) return false;
  std::memcpy(&packet.header, packet.first.data(), sizeof(PacketHeader));
  packet.body.resize(packet.header.what_bytes + packet.header.text_bytes);
  const size_t in_first = std::min(packet.body.size(), kFirstText);
  std::memcpy(packet.body.data(), packet.first.data() + sizeof(PacketHeader), in_first);
  if (in_first == packet.body.size()) return true;
  packet.requests.push_back(transport.receive(
      from, tag, std::as_writable_bytes(std::span(packet.body).subspan(in_first))));
  return wait_all(packet, deadline);
}

// Concatenates texts, each after its length, without empty ones at the end: maxima and broadcasts
// have short results.
std::string pack_texts(std::span<const std::string> texts) {
  while (!texts.empty() && texts.back().empty()) texts = texts.first(texts.size() - 1);
  MessageWriter packed;
  for (const std::string& text : texts) packed.add(text);
  return packed.text();
}

std::vector<std::string> unpack_texts(std::string_view packed, int count) {
  std::vector<std::string> texts;
  for (MessageReader message(packed); !message.at_end();) message.take(texts.emplace_back());
  texts.resize(static_cast<size_t>(count));
  return texts;
}

double seconds(Milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

StallProbes::Registration StallProbes::add(Probe probe) {
  std::unique_lock lock(mutex_);
  const int64_t number = next_++;
  probes_.emplace(number, std::move(probe));
  lock.unlock();
  return Registration(this, [this, number](void*) {
    const std::lock_guard lock(mutex_);
    probes_.erase(number);
  });
}

std::string StallProbes::stalled(std::chrono::milliseconds least) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, probe] : probes_)
    if (std::string text = probe(least); !text.empty()) return text;
  return "";
}

struct ProcessGroup::Contribution {
  std::string what;
  std::string text;
  int64_t value = 0;
  bool failed = false;
  bool to_first = false;  // Only process 0 needs the texts.
};

struct ProcessGroup::Result {
  bool failed = false;
  int64_t value = 0;               // The maximum, or the highest exit code if the round failed.
  std::vector<std::string> texts;  // By rank; the errors if the round failed.
};

ProcessGroup::ProcessGroup(std::shared_ptr<Transport> transport, Milliseconds timeout, int channel)
    : transport_(std::move(transport)),
      timeout_(timeout),
      tag_(kFirstAgreementTag + channel),
      own_probe_(stall_probes_.add([this](Milliseconds least) { return stalled(least); })) {
  CHECK(channel >= 0 && channel < kChannels);
}

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

std::string ProcessGroup::status() const {
  if (std::string waiting = stalled({}); !waiting.empty()) return waiting;
  const std::lock_guard lock(waiting_mutex_);
  return fmt::format("{} is busy since '{}' and waits for no other process", name(rank()),
                     awaited_at_.empty() ? "its start" : awaited_at_);
}

// The contributions that the leader has received.
struct ProcessGroup::Round {
  bool failed = false;
  int64_t value = 0;
  std::vector<std::string> texts, errors;  // By rank; "" for a missing process.
  std::vector<int> present;
  std::string missing, diverged;  // Used in the report.
};

ProcessGroup::Round ProcessGroup::receive_contributions(const Contribution& mine,
                                                        WaitDeadline& deadline) {
  std::vector<std::shared_ptr<Packet>> packets{nullptr};
  for (int rank = 1; rank < size(); ++rank)
    packets.push_back(post_receive(*transport_, rank, tag_));
  Round round{.failed = mine.failed, .value = mine.value, .texts = {mine.text}};
  round.errors.push_back(mine.failed ? mine.text : "");
  for (int rank = 1; rank < size(); ++rank) {
    Packet& packet = *packets[static_cast<size_t>(rank)];
    note_waiting(rank, mine.what);
    const bool received = receive_packet(*transport_, rank, tag_, packet, deadline);
    round.texts.push_back(received ? packet.text() : "");
    round.errors.emplace_back(received && packet.header.failed != 0 ? packet.text() : "");
    if (!received) {
      round.missing += (round.missing.empty() ? "" : ", ") + name(rank);
      keep_until_exit(packets[static_cast<size_t>(rank)]);
      continue;
    }
    round.present.push_back(rank);
    if (packet.header.failed != 0) {
      round.value = std::max(round.failed ? round.value : 0, packet.header.value);
      round.failed = true;
    } else if (!round.failed) {
      round.value = std::max(round.value, packet.header.value);
      if (packet.what() != mine.what || packet.header.round != round_)
        round.diverged = fmt::format("{} is at '{}' and {} at '{}': the processes have diverged",
                                     name(rank), packet.what(), name(0), mine.what);
    }
  }
  note_waiting(-1, "");
  return round;
}

ProcessGroup::Result ProcessGroup::run_leader(const Contribution& mine, Milliseconds timeout) {
  WaitDeadline deadline(timeout);
  Round round = receive_contributions(mine, deadline);
  // The error of a process that failed explains why others are missing or diverged.
  if (!round.failed && !round.missing.empty()) {
    broken_ = fmt::format("{} did not reach '{}' within {:g} s: suspended, dead or much slower{}",
                          round.missing, mine.what, seconds(timeout), deadline.suspension_note());
  } else if (!round.failed) {
    broken_ = round.diverged;
  }
  Result result{.failed = round.failed || !broken_.empty(), .value = round.value};
  if (!broken_.empty()) {
    result.value = 1;
    round.errors[0] = broken_;
  }
  result.texts = std::move(result.failed ? round.errors : round.texts);
  const bool is_short = mine.to_first && !result.failed;
  send_result(is_short ? Result() : result, mine.what, round.present, timeout);
  if (broken_.empty() && !round.missing.empty())
    broken_ = fmt::format("{} did not receive the report of a failure", round.missing);
  return result;
}

void ProcessGroup::send_result(const Result& result, const std::string& what,
                               const std::vector<int>& ranks, Milliseconds timeout) {
  const PacketHeader header{
      .round = round_, .value = result.value, .failed = result.failed ? 1u : 0u};
  std::vector<std::shared_ptr<Packet>> replies;
  for (const int rank : ranks)
    replies.push_back(send_packet(*transport_, rank, tag_, header, "", pack_texts(result.texts)));
  WaitDeadline deadline(timeout + kReportGrace);
  for (size_t i = 0; i < ranks.size(); ++i) {
    // A transport may complete even a small send only when the receiver takes it.
    note_waiting(ranks[i], what);
    if (!wait_all(*replies[i], deadline)) keep_until_exit(replies[i]);
  }
  note_waiting(-1, "");
}

ProcessGroup::Result ProcessGroup::run_peer(const Contribution& mine, Milliseconds timeout) {
  WaitDeadline deadline(timeout + kReportGrace);
  const PacketHeader header{.round = round_, .value = mine.value, .failed = mine.failed ? 1u : 0u};
  note_waiting(0, mine.what);
  const auto sent = send_packet(*transport_, 0, tag_, header, mine.what, mine.text);
  const auto reply = post_receive(*transport_, 0, tag_);
  if (!wait_all(*sent, deadline) || !receive_packet(*transport_, 0, tag_, *reply, deadline)) {
    keep_until_exit(sent);
    keep_until_exit(reply);
    broken_ = fmt::format(
        "{} did not answer at '{}' within {:g} s: suspended, dead or waiting for another{}",
        name(0), mine.what, seconds(timeout), deadline.suspension_note());
    fail("{}", broken_);
  }
  note_waiting(-1, "");
  return {.failed = reply->header.failed != 0,
          .value = reply->header.value,
          .texts = unpack_texts(reply->text(), size())};
}

ProcessGroup::Result ProcessGroup::exchange(const Contribution& mine, Milliseconds timeout) {
  if (failure_ || !broken_.empty())
    fail("no communication is possible after a failure{}{}", broken_.empty() ? "" : ": ", broken_);
  ++round_;
  Result result = rank() == 0 ? run_leader(mine, timeout) : run_peer(mine, timeout);
  if (result.failed)
    failure_ = {.errors = result.texts, .exit_code = static_cast<int>(result.value)};
  return result;
}

// Calls exchange() and throws the first error if the round failed.
ProcessGroup::Result ProcessGroup::checked(const Contribution& mine) {
  Result result = exchange(mine, timeout_);
  if (!result.failed) return result;
  const auto first =
      std::ranges::find_if(result.texts, [](const std::string& error) { return !error.empty(); });
  CHECK(first != result.texts.end());
  const int failed = static_cast<int>(first - result.texts.begin());
  if (failed == rank()) fail("{}", *first);
  fail("{} failed: {}", name(failed), *first);
}

void ProcessGroup::barrier(std::string_view what) { all_reduce_max(0, what); }

int64_t ProcessGroup::all_reduce_max(int64_t value, std::string_view what) {
  if (size() == 1) return value;
  return checked({.what = std::string(what), .value = value}).value;
}

std::string ProcessGroup::broadcast(std::string text, std::string_view what) {
  if (size() == 1) return text;
  if (rank() != 0) text.clear();
  Result result = checked({std::string(what), std::move(text)});
  return std::move(result.texts.at(0));
}

std::vector<std::string> ProcessGroup::all_gather(std::string text, std::string_view what) {
  if (size() == 1) return {std::move(text)};
  return checked({std::string(what), std::move(text)}).texts;
}

std::vector<std::string> ProcessGroup::gather(std::string text, std::string_view what) {
  if (size() == 1) return {std::move(text)};
  return checked({.what = std::string(what), .text = std::move(text), .to_first = true}).texts;
}

std::vector<std::string> ProcessGroup::run_on_all(std::string_view what,
                                                  const std::function<std::string()>& work) {
  std::string outcome;  // "+" and this process's text, or "-" and its error.
  try {
    outcome = fmt::format("+{}", work());
  } catch (const std::exception& error) {
    outcome = fmt::format("-{}", error_text(error));
  }
  std::vector<std::string> outcomes = all_gather(outcome, what);
  std::vector<std::string> failures;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const bool failed = !outcomes[rank].starts_with('+');
    outcomes[rank].erase(0, 1);
    if (failed)
      failures.push_back(outcomes.size() == 1
                             ? outcomes[rank]
                             : name(static_cast<int>(rank)) + ": " + outcomes[rank]);
  }
  if (!failures.empty()) fail("{}", fmt::join(failures, "; "));
  return outcomes;
}

std::optional<SharedFailure> ProcessGroup::fail_together(const std::string& error, int exit_code,
                                                         Milliseconds timeout) {
  if (size() == 1) return SharedFailure{{error}, exit_code};
  if (failure_ && broken_.empty()) return failure_;
  if (!broken_.empty()) return std::nullopt;
  try {
    exchange({.what = "a failure", .text = error, .value = exit_code, .failed = true}, timeout);
  } catch (const Error&) {
    return std::nullopt;
  }
  return broken_.empty() ? failure_ : std::nullopt;
}

}  // namespace tessera
