#include "tests/multihost/hosts.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <stdexcept>

namespace kolo::test {
namespace {

const std::string kPrefix = "kolo";

Outcome ip(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), Hosts::ip_path());
  return run(arguments);
}

void must_ip(const std::vector<std::string>& arguments) {
  const Outcome outcome = ip(arguments);
  if (outcome.exit_code == 0) return;
  std::string text = "ip";
  for (const std::string& word : arguments) text += " " + word;
  throw std::runtime_error(text + ": " + outcome.err);
}

std::string name_of(pid_t pid, const std::string& what) {
  return kPrefix + std::to_string(pid) + what;
}

// Namespaces of a test that was killed: the process in their name is gone.
void remove_leftovers() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", ignored)) {
    const std::string name = entry.path().filename();
    int pid = 0;
    char kind = '\0';
    if (std::sscanf(name.c_str(), "kolo%d%c", &pid, &kind) != 2) continue;
    if ((kind == 'h' || kind == 's') && !is_alive(pid)) ip({"netns", "del", name});
  }
}

}  // namespace

std::string Hosts::ip_path() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  return {};
}

std::string Hosts::obstacle() {
  if (ip_path().empty()) return "there is no ip program; install iproute2";
  remove_leftovers();
  const std::string name = name_of(::getpid(), "s");
  const Outcome made = ip({"netns", "add", name});
  if (made.exit_code != 0) return "network namespaces need root: " + made.err;
  const Outcome entered = ip({"netns", "exec", name, "/bin/true"});
  ip({"netns", "del", name});
  return entered.exit_code == 0 ? "" : "cannot enter a network namespace: " + entered.err;
}

Hosts::Hosts(int count) : switch_(name_of(::getpid(), "s")) {
  try {
    must_ip({"netns", "add", switch_});
    must_ip({"-n", switch_, "link", "add", "bridge0", "type", "bridge"});
    must_ip({"-n", switch_, "link", "set", "bridge0", "up"});
    for (int host = 0; host < count; ++host) {
      const std::string number = std::to_string(host);
      const std::string name = name_of(::getpid(), "h" + number);
      const std::string port = "port" + number;
      must_ip({"netns", "add", name});
      names_.push_back(name);
      must_ip({"-n", switch_, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
               name});
      must_ip({"-n", switch_, "link", "set", port, "master", "bridge0", "up"});
      must_ip({"-n", name, "address", "add", "10.77.0." + std::to_string(host + 1) + "/24", "dev",
               "eth0"});
      must_ip({"-n", name, "link", "set", "eth0", "up"});
      must_ip({"-n", name, "link", "set", "lo", "up"});
    }
  } catch (...) {
    remove();
    throw;
  }
}

Hosts::~Hosts() { remove(); }

void Hosts::remove() const {
  for (const std::string& name : names_) ip({"netns", "del", name});
  ip({"netns", "del", switch_});
}

std::string Hosts::list(const std::vector<int>& ranks) const {
  std::string text;
  for (std::size_t host = 0; host < names_.size(); ++host) {
    text += (text.empty() ? "" : ",") + names_[host] + ":" + std::to_string(ranks[host]);
  }
  return text;
}

std::uint64_t Hosts::sent_bytes(int host) const {
  const Outcome outcome =
      ip({"netns", "exec", name(host), "/bin/cat", "/sys/class/net/eth0/statistics/tx_bytes"});
  if (outcome.exit_code != 0) throw std::runtime_error("tx_bytes: " + outcome.err);
  return std::strtoull(outcome.out.c_str(), nullptr, 10);
}

Outcome Hosts::launch(int ranks_per_host, const std::vector<std::string>& program,
                      const std::vector<std::string>& flags) const {
  return launch_on(std::vector<int>(names_.size(), ranks_per_host), program, flags);
}

std::vector<std::string> Hosts::command(const std::vector<int>& ranks,
                                        const std::vector<std::string>& program,
                                        const std::vector<std::string>& flags,
                                        const std::string& enter) const {
  std::vector<std::string> arguments = {
      KOLO_KOLORUN,
      "-np",
      std::to_string(std::accumulate(ranks.begin(), ranks.end(), 0)),
      "-H",
      list(ranks),
      "--launcher-exec",
      enter.empty() ? ip_path() + " netns exec" : enter,
      "--start-timeout",
      "10",
      "--peer-timeout-seconds",
      "3",
      "--grace",
      "2",
      "--stall-check-warning-time-seconds",
      "1",
      "--stall-check-shutdown-time-seconds",
      "5"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), program.begin(), program.end());
  return arguments;
}

Outcome Hosts::launch_on(const std::vector<int>& ranks, const std::vector<std::string>& program,
                         const std::vector<std::string>& flags, const std::string& enter,
                         double timeout_seconds) const {
  RunOptions options;
  options.timeout_seconds = timeout_seconds;
  return run(command(ranks, program, flags, enter), options);
}

}  // namespace kolo::test
