// SPDX-License-Identifier: Apache-2.0
// A program of the build as a child process of a test, which can wait for, signal or kill it.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera {

class Child {
 public:
  // Starts bin/<program> of this build; its output goes to the file `output`.
  Child(const std::string& program, const std::vector<std::string>& arguments,
        std::filesystem::path output);
  ~Child();  // Kills it if it still runs.
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Its exit code, or -signal if a signal ended it.
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
