// SPDX-License-Identifier: Apache-2.0
// Messages between the processes of a run, and nothing more: collectives are made of them
// (communicator.h), and so is agreement (process_group.h). One process needs none; plugins bring
// others.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Tags from here on belong to process_group.h; collectives use those below.
constexpr uint64_t kAgreementTags = uint64_t{1} << 63;

// A message under way. Destroying it before it is done leaves the transport unusable.
class Message {
 public:
  virtual ~Message() = default;
  // Waits until it is done; false if it is not by then.
  virtual bool wait_until(std::chrono::steady_clock::time_point deadline) = 0;
};

// Any thread may call any member at any time. An Error means that the transport itself failed (a
// connection broke); the run cannot go on.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view kind() const = 0;  // "mpi"
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const std::string& host(int rank) const = 0;  // Processes of one host share a name.

  // The bytes must stay until the message is done. Of one (sender, receiver, tag) messages arrive
  // in the order sent, with the sizes the receiver expects; any size, 0 included.
  virtual std::unique_ptr<Message> send(int to, uint64_t tag, std::span<const std::byte> bytes) = 0;
  virtual std::unique_ptr<Message> receive(int from, uint64_t tag, std::span<std::byte> bytes) = 0;

  // Ends every process of the run, this one included, without waiting for anybody.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

}  // namespace tessera
