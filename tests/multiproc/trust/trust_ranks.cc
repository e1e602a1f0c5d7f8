// A rank for the tests of trust.
//
//   trust_ranks steps FOLDER    all-reduces and checks every bit until FOLDER/stop is there; writes
//                               its environment's rendezvous, secret and job to FOLDER/ready.RANK,
//                               and how many steps it made to FOLDER/done.RANK
//   trust_ranks steps FOLDER times
//                               also writes kolo_info() to FOLDER/info.RANK at its end, and of each
//                               step two int64 to FOLDER/times.RANK: when it began, in ns of
//                               CLOCK_MONOTONIC, and how many ns its all-reduce took
//   trust_ranks S27             rank 1 says that it speaks another protocol; both must be told
#include <kolo/kolo.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "transport/rendezvous/rendezvous.h"

namespace {

using namespace std::chrono_literals;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int fail(const std::string& what) {
  std::printf("%s: %s\n", what.c_str(), kolo_last_error());
  return 90;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Whole or not there at all.
void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path + ".part") << text;
  std::rename((path + ".part").c_str(), path.c_str());
}

struct StepTime {
  std::int64_t began_ns = 0;
  std::int64_t allreduce_ns = 0;
};

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / 1ns; }

int write_times(kolo_context* context, const std::string& folder, const std::string& rank,
                const std::vector<StepTime>& times) {
  const char* info = nullptr;
  if (kolo_info(context, &info) != KOLO_OK) return fail("kolo_info");
  write_file(folder + "/info." + rank, info);
  write_file(folder + "/times." + rank,
             {reinterpret_cast<const char*>(times.data()), times.size() * sizeof(StepTime)});
  return 0;
}

int steps(const std::string& folder, bool timed) {
  kolo_context* context = nullptr;
  if (kolo_init(nullptr, &context) != KOLO_OK) return fail("kolo_init");
  const int rank = kolo_rank(context);
  const std::int64_t size = kolo_size(context);
  const std::string name = std::to_string(rank);
  constexpr std::size_t kCount = 20000;
  std::vector<std::int64_t> values(kCount);
  std::vector<StepTime> times;
  std::int64_t step = 0;
  for (bool stop = false; !stop; ++step) {
    StepTime time{now_ns(), 0};
    for (std::size_t i = 0; i + 1 < kCount; ++i) {
      values[i] = (rank + 1) * (step + static_cast<std::int64_t>(i));
    }
    values.back() = rank == 0 && exists(folder + "/stop") ? 1 : 0;
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "step";
    const std::int64_t called_ns = now_ns();
    if (kolo_allreduce(context, values.data(), values.data(), kCount, KOLO_INT64, KOLO_SUM,
                       &options, nullptr) != KOLO_OK) {
      return fail("kolo_allreduce");
    }
    time.allreduce_ns = now_ns() - called_ns;
    if (timed) times.push_back(time);
    for (std::size_t i = 0; i + 1 < kCount; ++i) {
      const std::int64_t sum = size * (size + 1) / 2 * (step + static_cast<std::int64_t>(i));
      if (values[i] != sum) return fail("wrong at " + std::to_string(i));
    }
    stop = values.back() != 0;
    if (step == 0) {
      write_file(folder + "/ready." + name, variable("KOLO_RENDEZVOUS") + "\n" +
                                                variable("KOLO_SECRET") + "\n" +
                                                variable("KOLO_JOB") + "\n");
    }
    ::usleep(1000);
  }
  write_file(folder + "/done." + name, std::to_string(step));
  if (timed && write_times(context, folder, name, times) != 0) return 93;
  return kolo_shutdown(context) == KOLO_OK ? 0 : fail("kolo_shutdown");
}

int other_protocol() {
  using namespace kolo::internal;
  const auto start = std::chrono::steady_clock::now();
  std::string text;
  if (variable("KOLO_RANK") == "1") {
    JobIdentity identity{variable("KOLO_JOB"), variable("KOLO_SECRET"), kProtocolVersion + 1};
    PeerInfo self;
    self.rank = 1;
    self.host = "a host";
    const auto client = RendezvousClient::join(variable("KOLO_RENDEZVOUS"), identity, 2, self, 10s);
    if (client.status().code() != StatusCode::kInvalidArgument) return 91;
    text = client.status().text();
  } else {
    kolo_context* context = nullptr;
    if (kolo_init(nullptr, &context) != KOLO_INVALID_ARGUMENT) return fail("kolo_init");
    text = kolo_last_error();
  }
  // From the moment that both were there; their starts are a little apart.
  const bool soon = std::chrono::steady_clock::now() - start < 1500ms;
  std::printf("%s\n", text.c_str());
  return soon ? 0 : 92;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "steps" && argc >= 3) return steps(argv[2], argc > 3);
  if (what == "S27") return other_protocol();
  std::fprintf(stderr, "usage: see the top of trust_ranks.cc\n");
  return 2;
}
