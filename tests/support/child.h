// SPDX-License-Identifier: Apache-2.0
// Another program run by a test: runexp as a user runs it, to be waited for, signalled or killed.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

class Child {
 public:
  // Starts bin/<program> of this build; what it prints goes to the file `output`.
  Child(const std::string& program, const std::vector<std::string>& arguments,
        std::filesystem::path output);
  ~Child();  // Killed if it still runs.
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Its exit code, or -signal if it was ended by one.
  int wait();
  bool running();
  void send(int signal);
  std::string output() const;  // So far.

 private:
  void note(int status);
  int pid_ = -1;
  bool ended_ = false;
  int code_ = 0;
  std::filesystem::path output_;
};

}  // namespace tessera
