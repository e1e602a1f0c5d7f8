// kolo_sim: runs the simulator over many seeds.
//
// usage: kolo_sim --seeds A..B [--jobs N] [--trace]
// Exit code 0 if every invariant holds for every seed; else 1, with seed, invariant and trace of
// the run that broke one (the smallest such seed that was met). --trace prints each run's trace.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/sim/simulation.h"

namespace kolo::internal {
namespace {

struct Arguments {
  std::uint64_t first = 1;
  std::uint64_t last = 1000;
  unsigned jobs = 1;
  bool trace = false;
};

bool read_number(std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Arguments> read_arguments(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--trace") {
      arguments.trace = true;
      continue;
    }
    if (i + 1 == words.size()) return std::nullopt;
    const std::string_view value = words[i + 1];
    if (words[i] == "--seeds") {
      const std::size_t dots = value.find("..");
      const std::string_view last = dots == value.npos ? value : value.substr(dots + 2);
      if (!read_number(value.substr(0, dots), arguments.first)) return std::nullopt;
      if (!read_number(last, arguments.last)) return std::nullopt;
    } else if (words[i] == "--jobs") {
      std::uint64_t jobs = 0;
      if (!read_number(value, jobs) || jobs < 1 || jobs > 256) return std::nullopt;
      arguments.jobs = static_cast<unsigned>(jobs);
    } else {
      return std::nullopt;
    }
    ++i;
  }
  return arguments;
}

// The work of all jobs; the first members are theirs to change, under the lock.
struct Work {
  std::mutex mutex;
  std::uint64_t broken_seed = 0;  // 0: none
  RunReport broken;
  RunReport total;
  std::uint64_t runs = 0;
  std::atomic<std::uint64_t> next{0};
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print_progress(const Work& work, std::chrono::steady_clock::time_point start) {
  const double seconds = seconds_since(start);
  std::printf(
      "%llu seeds, %.0f seeds/s; %zu operations, %zu frames, %zu cuts (%zu fused), "
      "submissions ended by payloads: %zu, in slots: %zu, by the log: %zu\n",
      static_cast<unsigned long long>(work.runs), static_cast<double>(work.runs) / seconds,
      work.total.ops, work.total.frames, work.total.cuts, work.total.fused_cuts,
      work.total.payload_units, work.total.inline_units, work.total.log_units);
  std::fflush(stdout);
}

void run_seeds(const Arguments& arguments, Work& work,
               std::chrono::steady_clock::time_point start) {
  for (;;) {
    const std::uint64_t seed = work.next++;
    if (seed > arguments.last) return;
    RunReport report = Simulation(seed, arguments.trace).run();
    const std::lock_guard lock(work.mutex);
    for (const std::string& line : report.trace) std::printf("%s\n", line.c_str());
    ++work.runs;
    work.total.ops += report.ops;
    work.total.frames += report.frames;
    work.total.cuts += report.cuts;
    work.total.fused_cuts += report.fused_cuts;
    work.total.payload_units += report.payload_units;
    work.total.inline_units += report.inline_units;
    work.total.log_units += report.log_units;
    if (work.runs % 1000 == 0) print_progress(work, start);
    if (report.invariant.empty()) continue;
    if (work.broken_seed == 0 || seed < work.broken_seed) {
      work.broken_seed = seed;
      work.broken = std::move(report);
    }
    work.next = arguments.last + 1;
    return;
  }
}

void print_broken(const Work& work) {
  constexpr std::size_t kShown = 120;
  const RunReport again = Simulation(work.broken_seed, true).run();
  const std::size_t first = again.trace.size() > kShown ? again.trace.size() - kShown : 0;
  for (std::size_t i = first; i < again.trace.size(); ++i) {
    std::printf("%s\n", again.trace[i].c_str());
  }
  std::printf("invariant %s violated at seed %llu: %s\n", work.broken.invariant.c_str(),
              static_cast<unsigned long long>(work.broken_seed), work.broken.text.c_str());
  std::printf("run it again: kolo_sim --seeds %llu --trace\n",
              static_cast<unsigned long long>(work.broken_seed));
}

int run(const Arguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  Work work;
  work.next = arguments.first;
  std::vector<std::thread> jobs;
  for (unsigned i = 0; i < arguments.jobs; ++i) {
    jobs.emplace_back([&] { run_seeds(arguments, work, start); });
  }
  for (std::thread& job : jobs) job.join();
  print_progress(work, start);
  if (work.broken_seed == 0) return 0;
  print_broken(work);
  return 1;
}

}  // namespace
}  // namespace kolo::internal

int main(int argc, char** argv) {
  const auto arguments = kolo::internal::read_arguments({argv + 1, argv + argc});
  if (!arguments) {
    std::fprintf(stderr, "usage: kolo_sim --seeds A..B [--jobs N] [--trace]\n");
    return 2;
  }
  return kolo::internal::run(*arguments);
}
