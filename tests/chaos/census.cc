#include "tests/chaos/census.h"

#include <fcntl.h>
#include <sched.h>

#include <charconv>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "tests/multiproc/launcher/process.h"

namespace kolo::chaos {
namespace {

// A file as processes of that network namespace see it.
std::string read_there(const std::string& network, const std::string& path) {
  std::string text;
  std::thread([&] {  // only this thread goes there
    const std::string place = "/run/netns/" + network;
    const internal::UniqueFd there(::open(place.c_str(), O_RDONLY | O_CLOEXEC));
    if (there.is_open() && ::setns(there.get(), CLONE_NEWNET) == 0) {
      text = test::read_file("/proc/thread-self/net/" + path);
    }
  })
      .join();
  return text;
}

}  // namespace

std::vector<pid_t> processes_of(const std::string& trial) {
  const std::string wanted = std::string(kTrialVariable) + "=" + trial;
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || *end != '\0') continue;
    const std::string variables = '\0' + test::read_file(entry.path() / "environ");
    if (variables.find('\0' + wanted + '\0') != std::string::npos && test::is_alive(pid)) {
      found.push_back(pid);
    }
  }
  return found;
}

std::vector<std::string> sockets_in(const std::string& network) {
  std::vector<std::string> found;
  for (const std::string& line : test::lines_of(read_there(network, "unix"))) {
    const std::size_t at = line.find('@');
    if (at != std::string::npos) found.push_back("abstract socket " + line.substr(at));
  }
  for (const char* protocol : {"tcp", "tcp6"}) {
    for (const std::string& line : test::lines_of(read_there(network, protocol))) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A") found.push_back(std::string(protocol) + " listener at " + local);
    }
  }
  return found;
}

std::vector<std::string> shared_files() {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find("kolo") != std::string::npos) found.push_back("/dev/shm/" + name);
  }
  return found;
}

std::size_t own_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.path().empty() ? 0 : 1;
  }
  return count;
}

}  // namespace kolo::chaos
