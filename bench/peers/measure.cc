#include "bench/peers/measure.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/common/statistics.h"

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;
using Json = nlohmann::json;

constexpr std::size_t kPatternLength = 251;
constexpr double kLargestGrowth = 0x1p100;  // keeps floats finite
constexpr double kBatchSeconds = 0.02;
constexpr int kFewestBatches = 3;
constexpr double kFewestCalls = 2;       // in a batch: they are back to back
constexpr int kCallsBetweenChecks = 50;  // of latency

// One period of what a rank puts in, times `factor`. The period is odd, so that data in a wrong
// place shows.
std::array<float, kPatternLength> pattern(double factor) {
  std::array<float, kPatternLength> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(factor * static_cast<double>(1 + i));
  }
  return values;
}

void fill(std::vector<float>& data, int rank) {
  const auto values = pattern(rank + 1);
  for (std::size_t begin = 0; begin < data.size(); begin += values.size()) {
    const std::size_t count = std::min(values.size(), data.size() - begin);
    std::copy_n(values.data(), count, data.data() + begin);
  }
}

// The first call sums rank + 1 over the ranks; each further call sums `size` equal values.
void check(const std::vector<float>& data, int size, int calls) {
  const auto expected = pattern(0.5 * size * (size + 1) * std::pow(size, calls - 1));
  const float tolerance = 1e-6F * static_cast<float>(calls + size);
  for (std::size_t begin = 0; begin < data.size(); begin += expected.size()) {
    const std::size_t count = std::min(expected.size(), data.size() - begin);
    bool wrong = false;  // of the period; without a branch for each element
    for (std::size_t i = 0; i < count; ++i) {
      wrong |= !(std::abs(data[begin + i] - expected[i]) <= tolerance * expected[i]);
    }
    if (!wrong) continue;
    die("wrong result among elements " + std::to_string(begin) + " to " +
        std::to_string(begin + count - 1) + " of " + std::to_string(data.size()) + " after " +
        std::to_string(calls) + " calls: the first is " + std::to_string(data[begin]) +
        ", expected " + std::to_string(expected[0]));
  }
}

int most_calls(int size) {
  if (size == 1) return 1000;
  return std::max(2, static_cast<int>(std::log(kLargestGrowth) / std::log(size)) - 2);
}

// Rank 0's number, on every rank; it also brings the ranks together.
int agree(System& system, int number) {
  return static_cast<int>(system.sum(system.rank() == 0 ? number : 0));
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double batch_us(System& system, std::vector<float>& data, int calls) {
  fill(data, system.rank());
  system.sum(0);  // nobody starts while others still fill
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < calls; ++i) system.allreduce();
  const Microseconds taken = Clock::now() - start;
  check(data, system.size(), calls);
  return taken.count() / calls;
}

Json measure_size(const Work& work, System& system, std::size_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  system.prepare(data.data(), data.size());
  batch_us(system, data, 1);  // learns the name, maps the memory
  double call_us = batch_us(system, data, 2);
  std::vector<double> batches;
  const double budget = std::chrono::duration<double>(work.budget).count();
  const Clock::time_point start = Clock::now();
  while (true) {
    const bool enough = batches.size() >= kFewestBatches && seconds_since(start) > budget;
    const double wanted = std::clamp(1e6 * kBatchSeconds / call_us, kFewestCalls,
                                     static_cast<double>(most_calls(system.size())));
    const int calls = agree(system, enough ? 0 : static_cast<int>(wanted));
    if (calls == 0) break;
    batches.push_back(batch_us(system, data, calls));
    call_us = quantile(batches, 0.5);
  }
  return {{"bytes", bytes}, {"us", quantile(batches, 0.5)}, {"batches", batches.size()}};
}

Json measure_latency(const Work& work, System& system) {
  std::vector<float> data(2);
  system.prepare(data.data(), data.size());
  batch_us(system, data, 1);
  batch_us(system, data, most_calls(system.size()));
  std::vector<double> calls_us;
  const double budget = std::chrono::duration<double>(work.budget).count();
  const Clock::time_point start = Clock::now();
  const int calls = std::min(kCallsBetweenChecks, most_calls(system.size()));
  while (agree(system, seconds_since(start) < budget ? 1 : 0) == 1) {
    fill(data, system.rank());
    system.sum(0);
    for (int i = 0; i < calls; ++i) {
      const Clock::time_point begin = Clock::now();
      system.allreduce();
      calls_us.push_back(Microseconds(Clock::now() - begin).count());
    }
    check(data, system.size(), calls);
  }
  return {{"bytes", data.size() * sizeof(float)},
          {"us", quantile(calls_us, 0.5)},
          {"p99_us", quantile(calls_us, 0.99)},
          {"calls", calls_us.size()}};
}

// Of all threads of this process, from the scheduler's own account.
double cpu_seconds() {
  double nanoseconds = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "schedstat");
    double on_cpu = 0;
    if (!(file >> on_cpu)) die("cannot read " + (thread.path() / "schedstat").string());
    nanoseconds += on_cpu;
  }
  return 1e-9 * nanoseconds;
}

Json measure_idle(const Work& work, System& system) {
  std::vector<float> data(2);
  system.prepare(data.data(), data.size());
  batch_us(system, data, 2);  // an idle job is one that has worked, not one that never began
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double before = cpu_seconds();
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(work.idle_time);
  const double taken = seconds_since(start);
  const double share = (cpu_seconds() - before) / taken;
  system.sum(0);
  return {{"rank", system.rank()}, {"seconds", taken}, {"share_of_core", share}};
}

[[noreturn]] void usage(const char* program) {
  die(std::string("usage: ") + program +
      " --mode throughput|latency|idle --out FILE [--sizes BYTES,BYTES...] [--budget-ms N]"
      " [--idle-ms N] [--meeting DIR] [--rank N --size N]. allreduce_peers calls it so");
}

std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    sizes.push_back(std::strtoull(text.substr(begin, end - begin).c_str(), nullptr, 10));
    if (sizes.back() == 0 || sizes.back() % sizeof(float) != 0) {
      die("sizes are multiples of 4 bytes, '" + text + "' are not");
    }
    begin = end + 1;
  }
  return sizes;
}

Work::Mode parse_mode(const std::string& text) {
  if (text == "throughput") return Work::Mode::kThroughput;
  if (text == "latency") return Work::Mode::kLatency;
  if (text == "idle") return Work::Mode::kIdle;
  die("unknown mode '" + text + "'; there are throughput, latency and idle");
}

}  // namespace

Work parse_work(int argc, char** argv) {
  Work work;
  if (argc % 2 == 0) usage(argv[0]);
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    const std::string value = argv[i + 1];
    if (key == "--mode") {
      work.mode = parse_mode(value);
    } else if (key == "--out") {
      work.out = value;
    } else if (key == "--sizes") {
      work.sizes = parse_sizes(value);
    } else if (key == "--budget-ms") {
      work.budget = std::chrono::milliseconds(std::atoi(value.c_str()));
    } else if (key == "--idle-ms") {
      work.idle_time = std::chrono::milliseconds(std::atoi(value.c_str()));
    } else if (key == "--meeting") {
      work.meeting = value;
    } else if (key == "--rank") {
      work.rank = std::atoi(value.c_str());
    } else if (key == "--size") {
      work.size = std::atoi(value.c_str());
    } else {
      usage(argv[0]);
    }
  }
  if (work.out.empty()) usage(argv[0]);
  return work;
}

void run(const Work& work, System& system) {
  std::string path = work.out;
  std::vector<Json> lines;
  switch (work.mode) {
    case Work::Mode::kThroughput:
      for (const std::size_t bytes : work.sizes) {
        lines.push_back(measure_size(work, system, bytes));
      }
      break;
    case Work::Mode::kLatency: lines.push_back(measure_latency(work, system)); break;
    case Work::Mode::kIdle:
      lines.push_back(measure_idle(work, system));
      path += "." + std::to_string(system.rank());
      break;
  }
  if (work.mode != Work::Mode::kIdle && system.rank() != 0) return;
  std::ofstream file(path);
  for (const Json& line : lines) file << line.dump() << "\n";
  if (!file.flush()) die("cannot write the results to " + path);
}

}  // namespace kolo::bench
