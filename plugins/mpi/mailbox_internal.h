// SPDX-License-Identifier: Apache-2.0
// Turns messages with 64-bit tags into MPI messages and back. MPI's own tags have as few as 15
// bits, so each message is announced by an envelope with its tag and size. A small one travels in
// its envelope; a large one follows under an MPI tag of its own, in pieces whose size fits an int,
// once the receiver has asked for it. Not for several threads.
#pragma once

#include <mpi.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plugins/mpi/courier_internal.h"

namespace tessera::mpi {

class Mailbox {
 public:
  explicit Mailbox(MPI_Comm comm);

  void start(std::shared_ptr<Parcel> parcel);
  bool progress();  // Whether anything moved. Error if MPI reports one.
  bool expects_something() const { return !requests_.empty() || num_waiting_ > 0; }
  // All parcels that are not done.
  std::vector<std::shared_ptr<Parcel>> unfinished() const;

 private:
  struct Envelope {
    uint64_t tag = 0;
    uint64_t size = 0;
    int64_t lane = 0;  // The MPI tag its bytes come under; 0: they are in the envelope.
  };
  // MPI requests that end together.
  struct Transfer {
    std::shared_ptr<Parcel> parcel;  // Null if nobody waits for it.
    std::vector<std::byte> envelope;
    int requests_left = 0;
  };
  struct Arrival {
    Envelope envelope;
    std::vector<std::byte> bytes;
  };
  using Key = std::pair<int, uint64_t>;  // Sender and tag.

  void send(std::shared_ptr<Parcel> parcel);
  void accept(const std::shared_ptr<Parcel>& parcel, const Arrival& arrival);
  bool take_envelopes();
  bool finish_requests();
  void add_request(MPI_Request request, const std::shared_ptr<Transfer>& transfer);

  MPI_Comm comm_;
  int64_t num_lanes_ = 0;
  std::vector<int64_t> next_lane_;  // By receiver.
  std::map<Key, std::deque<Arrival>> arrived_;
  std::map<Key, std::deque<std::shared_ptr<Parcel>>> waiting_;
  int64_t num_waiting_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<std::shared_ptr<Transfer>> transfers_;  // Of each request.
  std::vector<int> finished_;
  std::vector<std::byte> envelope_;
};

void check(int result, const char* call);

}  // namespace tessera::mpi
