// A rank for the launcher's tests, which meets the others as kolo_init does, through the agent.
//
//   probe join exit CODE       meets, then _exit(CODE)
//   probe join exit-later CODE SECONDS RANK: that rank does so; others sleep for a minute
//   probe pieces LINES         writes numbered lines of odd lengths to both streams, 7 bytes a time
//   probe environment FOLDER   writes its environment, NUL-separated, to FOLDER/<rank>
//   probe kill-other FOLDER   rank 1 takes much memory; rank 0 kills it with SIGKILL, exits with 1
//   probe adopt FOLDER COMMAND...  runs it, its pid in FOLDER/agent; adopts what it leaves behind
//   and
//                              lets that live, as another machine's first process would
//   probe stamp FOLDER         on SIGTERM writes the time to FOLDER/<rank>.stamp and ends with 0
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>
#include <string_view>

#include "base/options.h"
#include "transport/rendezvous/rendezvous.h"

extern char** environ;  // NOLINT

namespace {

using kolo::internal::Config;

Config load_config() {
  Config config;
  std::vector<std::string> unknown;
  const auto status = config.load_environment(unknown);
  if (!status) {
    std::fprintf(stderr, "probe: %s\n", status.text().c_str());
    std::exit(101);
  }
  return config;
}

std::unique_ptr<kolo::internal::RendezvousClient> join(const Config& config) {
  kolo::internal::PeerInfo self;
  self.rank = static_cast<int>(config.integer("rank"));
  self.host_index = static_cast<int>(config.integer("host_index"));
  self.local_rank = static_cast<int>(config.integer("local_rank"));
  self.host = config.text("host_name");
  self.pid = ::getpid();
  self.endpoints = {"127.0.0.1:1"};
  auto client = kolo::internal::RendezvousClient::join(
      config.text("rendezvous"), {config.text("job"), config.text("secret")},
      static_cast<int>(config.integer("size")), self,
      std::chrono::milliseconds(config.integer("start_timeout_ms")));
  if (!client) {
    std::fprintf(stderr, "probe: %s\n", client.status().text().c_str());
    std::exit(102);
  }
  return *std::move(client);
}

void write_all(int fd, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = ::write(fd, data, bytes);
    if (written < 0) std::exit(103);
    data += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

// Line `i` of a stream: its number, then letters up to a length of 1 to 200.
std::string line_text(int rank, int stream, int i) {
  std::string line = std::to_string(i) + ":";
  const auto length = static_cast<std::size_t>((i * 7919 + rank * 31 + stream) % 200 + 1);
  while (line.size() < length) {
    line += static_cast<char>('a' + (rank + stream + i + static_cast<int>(line.size())) % 26);
  }
  return line + "\n";
}

int write_pieces(int rank, int lines) {
  std::string texts[2];
  for (int i = 0; i < lines; ++i) {
    for (int stream : {0, 1}) texts[stream] += line_text(rank, stream, i);
  }
  for (std::size_t at = 0; at < std::max(texts[0].size(), texts[1].size()); at += 7) {
    for (int stream : {0, 1}) {
      if (at >= texts[stream].size()) continue;
      write_all(stream + 1, texts[stream].data() + at,
                std::min<std::size_t>(7, texts[stream].size() - at));
    }
  }
  return 0;
}

int stamp_fd = -1;

extern "C" void on_term(int) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (::write(stamp_fd, &now, sizeof now) != sizeof now) ::_exit(104);
  ::_exit(0);
}

int wait_for_term(const std::string& base) {
  stamp_fd = ::open((base + ".stamp").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::signal(SIGTERM, on_term);
  std::ofstream(base + ".ready") << ::getpid() << "\n";
  while (true) ::pause();
}

// The killed one takes long to be taken apart: the killer is seen to end first.
int kill_other(int rank, const std::string& file) {
  if (rank == 0) {
    int victim = 0;
    while (!(std::ifstream(file) >> victim)) ::usleep(1000);
    ::kill(victim, SIGKILL);
    ::_exit(1);
  }
  std::vector<char> memory(std::size_t{256} << 20, 'x');
  std::ofstream(file + ".new") << ::getpid() << "\n";
  ::rename((file + ".new").c_str(), file.c_str());
  ::sleep(60);
  return memory[1] == 'x' ? 105 : 106;
}

int adopt(const std::string& folder, char** command) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t child = ::fork();
  if (child == 0) {
    std::ofstream(folder + "/agent") << ::getpid() << "\n";
    ::execvp(command[0], command);
    ::_exit(127);
  }
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "adopt") return adopt(argv[2], argv + 3);
  const Config config = load_config();
  const int rank = static_cast<int>(config.integer("rank"));
  const auto number = [&](int i) { return argc > i ? std::atoi(argv[i]) : 0; };
  if (mode == "join") {
    const auto client = join(config);
    if (std::string_view(argv[2]) == "exit") ::_exit(number(3));
    if (rank != number(5)) ::sleep(60);
    ::sleep(static_cast<unsigned>(number(4)));
    std::exit(number(3));
  }
  if (mode == "pieces") return write_pieces(rank, number(2));
  if (mode == "kill-other") return kill_other(rank, std::string(argv[2]) + "/victim");
  if (mode == "environment") {
    std::ofstream file(std::string(argv[2]) + "/" + std::to_string(rank), std::ios::binary);
    for (char** entry = environ; *entry != nullptr; ++entry) file << *entry << '\0';
    return 0;
  }
  if (mode == "stamp") return wait_for_term(std::string(argv[2]) + "/" + std::to_string(rank));
  return 100;
}
