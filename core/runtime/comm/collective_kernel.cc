// SPDX-License-Identifier: Apache-2.0
#include "core/runtime/comm/collective_kernel.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/runtime/comm/communicator.h"

namespace tessera {
namespace {

// Tags of this communicator's messages; process_group.h has others.
constexpr uint64_t kTags = uint64_t{1} << 60;
// Pieces of strided messages that are received at the same time.
constexpr int64_t kWindow = 4;

}  // namespace

Mail::~Mail() {
  if (pending_.empty()) return;
  static std::mutex mutex;
  static auto* const kept = new std::vector<Pending>;
  const std::lock_guard lock(mutex);
  for (Pending& each : pending_) kept->push_back(std::move(each));
}

CollectiveKernel::CollectiveKernel(CommunicatorState& state, int64_t device,
                                   std::shared_ptr<const CollectiveInfo> info)
    : state_(state),
      device_(device),
      info_(std::move(info)),
      scratch_bytes_(info_->scratch_bytes()),
      place_(state, info_->group, device),
      rendezvous_(state.rendezvous(info_->group)) {}

void CollectiveKernel::run(const HostArgs& args) {
  state_.begin(device_, info_);
  patience_ = Patience(state_.options().timeout);
  rendezvous_->offer(static_cast<int>(place_.self().position)) = {args.inputs[0], args.outputs[0],
                                                                  info_.get()};
  meet();
  check_agreement();
  communicate(args);
  meet();  // Nobody reads this device's buffers any more.
  state_.end(device_);
}

const PeerBuffers& CollectiveKernel::buffers_of(const Member& local) const {
  return rendezvous_->offer(static_cast<int>(local.position));
}

void CollectiveKernel::check_agreement() const {
  for (const Member& member : place_.local()) {
    const CollectiveInfo& other = *buffers_of(member).info;
    CHECK(other.signature == info_->signature, "device {} runs {}, device {} runs {}", device_,
          info_->signature, member.device, other.signature);
  }
}

void CollectiveKernel::meet() {
  const auto own = static_cast<int>(place_.self().position);
  const Rendezvous::Phase phase = rendezvous_->arrive(own);
  patience_.resume();
  Rendezvous::Outcome outcome = rendezvous_->wait(phase, patience_.next_look());
  while (outcome == Rendezvous::Outcome::kTimedOut && !patience_.look()) {
    if (patience_.is_nearly_over()) state_.tell_others();
    outcome = rendezvous_->wait(phase, patience_.next_look());
  }
  switch (outcome) {
    case Rendezvous::Outcome::kMet:
      return;
    case Rendezvous::Outcome::kStopped:
      state_.fail_stopped();
    case Rendezvous::Outcome::kTimedOut:
      break;
  }
  std::vector<int64_t> missing;
  for (const Member& member : place_.local())
    if (rendezvous_->times(static_cast<int>(member.position)) < rendezvous_->times(own))
      missing.push_back(member.device);
  state_.fail_timed_out(device_, missing, patience_);
}

void CollectiveKernel::count_taken(const Member& local, int64_t bytes) {
  if (local.device != device_) state_.count_sent(local.device, bytes);
}

uint64_t CollectiveKernel::tag(int64_t from, int64_t to) const {
  return kTags | static_cast<uint64_t>(from) << 24 | static_cast<uint64_t>(to);
}

void CollectiveKernel::send(const Member& to, std::span<const std::byte> bytes, Mail& mail) {
  if (bytes.empty()) return;
  mail.pending_.push_back(
      {state_.transport()->send(to.process, tag(device_, to.device), bytes), to.device});
  state_.count_sent(device_, static_cast<int64_t>(bytes.size()));
}

void CollectiveKernel::receive(const Member& from, std::span<std::byte> bytes, Mail& mail) {
  if (bytes.empty()) return;
  mail.pending_.push_back(
      {state_.transport()->receive(from.process, tag(from.device, device_), bytes), from.device});
}

void CollectiveKernel::await(Mail& mail) {
  patience_.resume();
  for (const Mail::Pending& each : mail.pending_) {
    while (!each.message->wait_until(patience_.next_look())) {
      if (state_.is_stopped()) state_.fail_stopped();
      state_.note_waiting(device_, each.with);
      if (patience_.look()) state_.fail_timed_out(device_, {each.with}, patience_);
      if (patience_.is_nearly_over()) state_.tell_others();
    }
  }
  mail.pending_.clear();
}

void CollectiveKernel::share_parts(const PartOf& part, const SourceOf& source, const std::byte* own,
                                   std::byte* out, std::byte* scratch) {
  Mail sent;
  if (place_.spans_processes()) send_own(part, own, sent);
  for (const Member& member : place_.local()) {
    const Source from = source(member);
    const Subarray to = part(member.index);
    if (from.array == out && member.device == device_) continue;  // It is there already.
    copy_region(from.part, from.array, to, out);
    count_taken(member, to.bytes());
  }
  if (!place_.spans_processes()) return;
  receive_parts(part, out, scratch);
  meet();
  for (size_t there = 0; there < place_.processes().size(); ++there) {
    if (there == place_.own_process()) continue;
    for (const Member& member : place_.processes()[there]) {
      const Member& leader = place_.leader(place_.own_process(), member);
      if (leader.device == device_) continue;
      const Subarray to = part(member.index);
      copy_region(to, output_of(leader), to, out);
      count_taken(leader, to.bytes());
    }
  }
  await(sent);
}

void CollectiveKernel::send_own(const PartOf& part, const std::byte* own, Mail& mail) {
  const Member& self = place_.self();
  const Subarray it = part(self.index);
  // What does not lie in one piece is received in pieces, through scratch.
  const int64_t piece =
      it.is_contiguous() ? std::max<int64_t>(it.bytes(), 1) : piece_bytes(kWindow);
  for (size_t there = 0; there < place_.processes().size(); ++there) {
    if (there == place_.own_process()) continue;
    for (int64_t at = 0; at < it.bytes(); at += piece) {
      const int64_t bytes = std::min(piece, it.bytes() - at);
      send(place_.leader(there, self), {own + at, static_cast<size_t>(bytes)}, mail);
    }
  }
}

void CollectiveKernel::receive_parts(const PartOf& part, std::byte* out, std::byte* scratch) {
  Mail straight;
  std::array<Mail, kWindow> staged;
  struct Piece {
    const Member* from;
    Subarray part;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (const Member& member : place_.peers()) {
    const Subarray to = part(member.index);
    if (to.is_contiguous()) {
      receive(member, {out + to.begin(), static_cast<size_t>(to.bytes())}, straight);
      continue;
    }
    const int64_t piece = piece_bytes(kWindow);
    for (int64_t at = 0; at < to.bytes(); at += piece)
      pieces.push_back({&member, to, at, std::min(at + piece, to.bytes())});
  }
  const auto buffer = [&](size_t i) {
    return scratch + static_cast<int64_t>(i % kWindow) * piece_bytes(kWindow);
  };
  const auto expect = [&](size_t i) {
    if (i >= pieces.size()) return;
    const auto bytes = static_cast<size_t>(pieces[i].end - pieces[i].begin);
    receive(*pieces[i].from, {buffer(i), bytes}, staged[i % kWindow]);
  };
  for (size_t i = 0; i < kWindow; ++i) expect(i);
  for (size_t i = 0; i < pieces.size(); ++i) {
    await(staged[i % kWindow]);
    pieces[i].part.unpack(buffer(i), pieces[i].begin, pieces[i].end, out);
    expect(i + kWindow);
  }
  await(straight);
}

int64_t CollectiveKernel::piece_bytes(int64_t buffers) const {
  constexpr int64_t kAlign = 64;
  const int64_t piece = scratch_bytes_ / std::max<int64_t>(buffers, 1) / kAlign * kAlign;
  CHECK(piece > 0, "{} bytes of scratch for {} buffers", scratch_bytes_, buffers);
  return piece;
}

std::unique_ptr<Kernel> make_collective_kernel(CommunicatorState& state, int64_t device,
                                               const Graph& graph, const Node& node) {
  auto info = std::make_shared<const CollectiveInfo>(read_collective(graph, node));
  CHECK(info->group[static_cast<size_t>(info->index)] == device, "device {} at place {} of a group",
        device, info->index);
  switch (info->kind) {
    case CollectiveKind::kAllGather:
      return make_gather_kernel(state, device, std::move(info));
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllReduce:
      return make_reduce_kernel(state, device, std::move(info));
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kPermute:
      break;
  }
  return make_exchange_kernel(state, device, std::move(info));
}

}  // namespace tessera
