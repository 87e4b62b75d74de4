// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "plugins/mpi/mailbox_internal.h"

namespace tessera::mpi {
namespace {

constexpr int kEnvelopeTag = 0;
constexpr size_t kLargestEnvelope = 4096;
constexpr size_t kLargestPiece = size_t{1} << 30;

void finish(Parcel& parcel) {
  const std::lock_guard lock(parcel.mutex);
  parcel.done = true;
  parcel.changed.notify_all();
}

int piece_at(size_t offset, size_t size) {
  return static_cast<int>(std::min(kLargestPiece, size - offset));
}

}  // namespace

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail("the connection between the processes failed: {}: {}", call,
       std::string_view(text, static_cast<size_t>(length)));
}

Mailbox::Mailbox(MPI_Comm comm) : comm_(comm), envelope_(kLargestEnvelope) {
  int size = 0, found = 0;
  int* largest = nullptr;
  check(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &largest, &found), "MPI_Comm_get_attr");
  num_lanes_ = found != 0 ? *largest : 32767;
  next_lane_.assign(static_cast<size_t>(size), 0);
}

void Mailbox::add_request(MPI_Request request, const std::shared_ptr<Transfer>& transfer) {
  requests_.push_back(request);
  transfers_.push_back(transfer);
  ++transfer->requests_left;
}

void Mailbox::start(std::shared_ptr<Parcel> parcel) {
  if (parcel->direction == Parcel::Direction::kSend) return send(std::move(parcel));
  const Key key{parcel->peer, parcel->tag};
  const auto here = arrived_.find(key);
  if (here == arrived_.end()) {
    waiting_[key].push_back(std::move(parcel));
    ++num_waiting_;
    return;
  }
  const Arrival arrival = std::move(here->second.front());
  here->second.pop_front();
  if (here->second.empty()) arrived_.erase(here);
  accept(parcel, arrival);
}

void Mailbox::send(std::shared_ptr<Parcel> parcel) {
  const auto announcement = std::make_shared<Transfer>();
  const bool is_small = sizeof(Envelope) + parcel->size <= kLargestEnvelope;
  Envelope envelope{.tag = parcel->tag, .size = parcel->size};
  if (!is_small) envelope.lane = 1 + next_lane_[static_cast<size_t>(parcel->peer)]++ % num_lanes_;
  std::vector<std::byte>& bytes = announcement->envelope;
  bytes.resize(sizeof(Envelope) + (is_small ? parcel->size : 0));
  std::memcpy(bytes.data(), &envelope, sizeof(Envelope));
  if (is_small && parcel->size > 0)
    std::memcpy(bytes.data() + sizeof(Envelope), parcel->data, parcel->size);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, parcel->peer,
                  kEnvelopeTag, comm_, &request),
        "MPI_Isend");
  add_request(request, announcement);
  if (is_small) return finish(*parcel);  // Its bytes are copied.

  const auto transfer = std::make_shared<Transfer>();
  transfer->parcel = parcel;
  for (size_t at = 0; at < parcel->size; at += kLargestPiece) {
    check(MPI_Isend(parcel->data + at, piece_at(at, parcel->size), MPI_BYTE, parcel->peer,
                    static_cast<int>(envelope.lane), comm_, &request),
          "MPI_Isend");
    add_request(request, transfer);
  }
}

void Mailbox::accept(const std::shared_ptr<Parcel>& parcel, const Arrival& arrival) {
  const Envelope& envelope = arrival.envelope;
  CHECK(envelope.size == parcel->size, "a message of {} bytes meets a receive of {} (tag {:x})",
        envelope.size, parcel->size, envelope.tag);
  if (envelope.lane == 0) {
    if (parcel->size > 0) std::memcpy(parcel->data, arrival.bytes.data(), parcel->size);
    return finish(*parcel);
  }
  const auto transfer = std::make_shared<Transfer>();
  transfer->parcel = parcel;
  for (size_t at = 0; at < parcel->size; at += kLargestPiece) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(parcel->data + at, piece_at(at, parcel->size), MPI_BYTE, parcel->peer,
                    static_cast<int>(envelope.lane), comm_, &request),
          "MPI_Irecv");
    add_request(request, transfer);
  }
}

// Envelopes of one sender are taken in the order sent; so are, then, its messages of one tag.
bool Mailbox::take_envelopes() {
  bool any = false;
  while (true) {
    int is_there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kEnvelopeTag, comm_, &is_there, &message, &status),
          "MPI_Improbe");
    if (is_there == 0) return any;
    any = true;
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    const int sender = status.MPI_SOURCE;
    check(MPI_Mrecv(envelope_.data(), static_cast<int>(envelope_.size()), MPI_BYTE, &message,
                    MPI_STATUS_IGNORE),
          "MPI_Mrecv");
    Arrival arrival;
    std::memcpy(&arrival.envelope, envelope_.data(), sizeof(Envelope));
    arrival.bytes.assign(envelope_.begin() + sizeof(Envelope), envelope_.begin() + size);
    const Key key{sender, arrival.envelope.tag};
    const auto wanted = waiting_.find(key);
    if (wanted == waiting_.end()) {
      arrived_[key].push_back(std::move(arrival));
      continue;
    }
    const std::shared_ptr<Parcel> parcel = std::move(wanted->second.front());
    wanted->second.pop_front();
    if (wanted->second.empty()) waiting_.erase(wanted);
    --num_waiting_;
    accept(parcel, arrival);
  }
}

bool Mailbox::finish_requests() {
  if (requests_.empty()) return false;
  finished_.resize(requests_.size());
  int count = 0;
  check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                     MPI_STATUSES_IGNORE),
        "MPI_Testsome");
  if (count <= 0) return false;
  for (int i = 0; i < count; ++i) {
    const std::shared_ptr<Transfer> transfer = transfers_[static_cast<size_t>(finished_[i])];
    if (--transfer->requests_left == 0 && transfer->parcel) finish(*transfer->parcel);
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    std::swap(transfers_[kept++], transfers_[i]);
  }
  requests_.resize(kept);
  transfers_.resize(kept);
  return true;
}

bool Mailbox::progress() {
  const bool came = take_envelopes();
  const bool ended = finish_requests();
  return came || ended;
}

std::vector<std::shared_ptr<Parcel>> Mailbox::unfinished() const {
  std::vector<std::shared_ptr<Parcel>> parcels;
  for (const auto& [key, queue] : waiting_)
    parcels.insert(parcels.end(), queue.begin(), queue.end());
  for (const std::shared_ptr<Transfer>& transfer : transfers_)
    if (transfer->parcel) parcels.push_back(transfer->parcel);
  return parcels;
}

}  // namespace tessera::mpi
