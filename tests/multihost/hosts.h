// Hosts: network namespaces as the hosts of a job, each with one wire (a veth pair) to a switch
// that is a bridge in a namespace of its own, so that this machine's own network is never touched.
//
// Names hold the process id: h-th host is "kolo<pid>h<h>" with address 10.77.0.<h+1>. All is
// removed by the destructor; what a killed test has left, by the next one. Needs root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {

class Hosts {
 public:
  // Why hosts cannot be made here; empty: they can.
  static std::string obstacle();

  explicit Hosts(int count);  // throws std::runtime_error with ip's words
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  [[nodiscard]] int count() const { return static_cast<int>(names_.size()); }
  [[nodiscard]] const std::string& name(int host) const {
    return names_[static_cast<std::size_t>(host)];
  }
  // "a:2,b:2" for -H.
  [[nodiscard]] std::string list(const std::vector<int>& ranks) const;
  // What a host has sent into its wire so far.
  [[nodiscard]] std::uint64_t sent_bytes(int host) const;
  // kolorun over these hosts, with the settings of the cases.
  [[nodiscard]] Outcome launch(int ranks_per_host, const std::vector<std::string>& program,
                               const std::vector<std::string>& flags = {}) const;
  // With so many ranks on each; commands on hosts are begun by `enter` (a path), called as
  // "enter HOST COMMAND...", if it is given.
  [[nodiscard]] Outcome launch_on(const std::vector<int>& ranks,
                                  const std::vector<std::string>& program,
                                  const std::vector<std::string>& flags = {},
                                  const std::string& enter = "", double timeout_seconds = 90) const;
  // The arguments of such a launch.
  [[nodiscard]] std::vector<std::string> command(const std::vector<int>& ranks,
                                                 const std::vector<std::string>& program,
                                                 const std::vector<std::string>& flags = {},
                                                 const std::string& enter = "") const;
  static std::string ip_path();  // of the ip program; empty: there is none

 private:
  void remove() const;

  std::string switch_;
  std::vector<std::string> names_;
};

}  // namespace kolo::test
