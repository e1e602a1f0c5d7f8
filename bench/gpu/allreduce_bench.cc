// kolo beside a bare NCCL communicator on the same GPUs, in one run: f32 sums, out of place.
//
//     [kolorun -np N] gpu_allreduce_bench [--part sweep|tiny|packing] [--no-peer] [--smoke]
//                     [--rounds N] [--title TEXT] [--json FILE] [--commit TEXT] [--machine TEXT]
//
// sweep: calls one after the other on one stream, 4 B to 64 MiB. `time` is that of a call when the
// stream has done them all, `host p50` what the calling thread spends in one: for kolo in the
// cached all-reduce and kolo_stream_wait() (kolo), or in the call without a request (kolo-call).
// busbw is that of nccl-tests: algbw * 2 (n - 1) / n.
// tiny: 2,000 tensors of 1 KiB, submitted one by one to kolo, in one group to NCCL; until done.
// packing: what kolo chooses between for fused tensors, on bare NCCL: 32 tensors of 4 KiB to 4 MiB
// in one group of its calls (nccl), or packed by kolo's kernels for one call (packed). The last
// line says from which size on the group is faster: that is what the option pack_tensor_bytes is
// for.
// Systems take turns within a round; the figures are the rounds' medians, times the slowest rank's.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "bench/common/statistics.h"
#include "bench/common/text.h"
#include "bench/common/usage.h"
#include "bench/gpu/device.h"
#include "bench/gpu/systems.h"

namespace kolo::bench {
namespace {

using Clock = std::chrono::steady_clock;

enum class Part { kSweep, kTiny, kPacking };
constexpr const char* kPartNames[] = {"sweep", "tiny", "packing"};

struct Options {
  Part part = Part::kSweep;
  bool with_peer = true;
  bool smoke = false;
  std::size_t rounds = 7;
  std::string title = "sweep";
  Origin origin;
};

double microseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

struct Figures {
  std::vector<double> rounds_us;
  std::vector<double> rounds_host_us;  // p50 of a round
  std::size_t wrong = 0;
};

class Bench {
 public:
  Bench(const Job& job, Device& device, const Options& options)
      : job_(job), device_(device), options_(options), stream_(device.stream()) {
    std::string why;
    if (options.with_peer || options.part == Part::kPacking) {
      add(make_nccl(job, device, &nccl_version_, &why));
    }
    if (options.part == Part::kPacking) {
      if (why.empty()) add(make_packed(job, device, &why));
    } else {
      add(make_kolo_waits(job, device));
      if (options.part == Part::kSweep) add(make_kolo_call(job, device));
    }
    if (job.rank() != 0) return;
    print_origin(options.origin, device, nccl_version_);
    std::printf("# %s: %d rank%s; f32 sums out of place; %zu interleaved rounds, medians\n",
                options.title.c_str(), job.size(), job.size() == 1 ? "" : "s", options.rounds);
    if (!why.empty()) {
      std::printf("# NOT RUN: %s: %s\n",
                  options.part == Part::kPacking ? "packing beside a group" : "bare NCCL",
                  why.c_str());
    }
    std::printf(
        "#       size         count      type   redop    root     system   tensors"
        "       time      algbw      busbw  #wrong   host p50\n"
        "#        (B)    (elements)                                                "
        "       (us)     (GB/s)     (GB/s)               (us)\n");
  }

  // Whether there is anything to compare.
  [[nodiscard]] bool has_pair() const { return systems_.size() >= 2; }
  // Of the last measure(), by system.
  [[nodiscard]] const std::vector<double>& times_us() const { return times_us_; }

  // Wrong elements on all ranks.
  std::size_t measure(std::size_t bytes, std::size_t count_of_tensors) {
    const std::size_t count = bytes / sizeof(float);
    const std::size_t all = count * count_of_tensors;
    const cuda::DeviceBuffer input = device_.allocate(all * sizeof(float));
    const cuda::DeviceBuffer output = device_.allocate(all * sizeof(float));
    device_.write(input.get(), std::vector<float>(all, static_cast<float>(job_.rank() + 1)));
    std::vector<Figures> figures(systems_.size());
    std::vector<std::vector<Tensor>> tensors(systems_.size());
    for (std::size_t s = 0; s < systems_.size(); ++s) {
      tensors[s] = cut(input, output, count, count_of_tensors, systems_[s]->name());
      systems_[s]->prepare(tensors[s]);
      round(*systems_[s], bytes, nullptr);  // warm: names become known
    }
    for (std::size_t r = 0; r < options_.rounds; ++r) {
      for (std::size_t turn = 0; turn < systems_.size(); ++turn) {
        const std::size_t s = (r + turn) % systems_.size();
        round(*systems_[s], bytes, &figures[s]);
      }
    }
    std::size_t wrong = 0;
    times_us_.clear();
    for (std::size_t s = 0; s < systems_.size(); ++s) {
      times_us_.push_back(median(figures[s].rounds_us));
      device_.must(
          device_.runtime().cudaMemsetAsync(output.get(), 0, output.bytes(), stream_.get()),
          "cudaMemsetAsync");
      round(*systems_[s], bytes, nullptr);
      const float sum = static_cast<float>(job_.size() * (job_.size() + 1)) / 2;
      const auto mine = count_wrong(device_.read(output.get(), all), sum);
      figures[s].wrong = static_cast<std::size_t>(job_.largest(static_cast<double>(mine)));
      wrong += figures[s].wrong;
      if (job_.rank() == 0) print(*systems_[s], bytes, count_of_tensors, figures[s]);
    }
    return wrong;
  }

 private:
  void add(std::unique_ptr<System> system) {
    if (system != nullptr) systems_.push_back(std::move(system));
  }

  static std::vector<Tensor> cut(const cuda::DeviceBuffer& input, const cuda::DeviceBuffer& output,
                                 std::size_t count, std::size_t tensors, const char* system) {
    std::vector<Tensor> list;
    const std::string stem = std::string(system) + "." + std::to_string(count) + ".";
    for (std::size_t i = 0; i < tensors; ++i) {
      list.push_back({static_cast<const float*>(input.get()) + i * count,
                      static_cast<float*>(output.get()) + i * count, count,
                      stem + std::to_string(i)});
    }
    return list;
  }

  [[nodiscard]] std::size_t iterations(std::size_t bytes) const {
    if (options_.smoke) return 3;
    if (options_.part == Part::kTiny) return 5;
    if (options_.part == Part::kPacking) return 20;
    return std::clamp((std::size_t{1} << 30) / bytes, std::size_t{20}, std::size_t{1000});
  }

  void round(System& system, std::size_t bytes, Figures* figures) {
    const std::size_t repetitions = iterations(bytes);
    const bool is_step = options_.part != Part::kSweep;
    std::vector<double> host_us;
    host_us.reserve(repetitions);
    job_.barrier();
    const Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < repetitions; ++i) {
      if (!is_step) system.make_room();
      const Clock::time_point before = Clock::now();
      if (is_step) {
        system.step(stream_.get());
      } else {
        system.sum(stream_.get());
      }
      host_us.push_back(microseconds(before, Clock::now()));
    }
    system.finish(stream_.get());
    const double each = microseconds(begin, Clock::now()) / static_cast<double>(repetitions);
    if (figures == nullptr) return;
    figures->rounds_us.push_back(job_.largest(each));
    figures->rounds_host_us.push_back(job_.largest(median(host_us)));
  }

  void print(const System& system, std::size_t bytes, std::size_t tensors, const Figures& figures) {
    const double us = median(figures.rounds_us);
    const double host_us = median(figures.rounds_host_us);
    const double ranks = job_.size();
    const std::size_t total = bytes * tensors;
    const double algbw = static_cast<double>(total) / us * 1e-3;
    const double busbw = algbw * 2 * (ranks - 1) / ranks;
    std::printf("%12zu  %12zu  %8s  %6s  %6d  %9s  %8zu  %9.2f  %9.3f  %9.3f  %6zu  %9.2f\n", total,
                total / sizeof(float), "float", "sum", -1, system.name(), tensors, us, algbw, busbw,
                figures.wrong, host_us);
    std::fflush(stdout);
    write_json(
        options_.origin, device_,
        {{"bench", std::string("gpu_") + kPartNames[static_cast<int>(options_.part)]},
         {"title", options_.title},
         {"system", system.name()},
         {"road", std::string_view(system.name()).starts_with("kolo") ? job_.road() : "nccl"},
         {"nccl", nccl_version_},
         {"ranks", job_.size()},
         {"bytes", total},
         {"count", total / sizeof(float)},
         {"tensors", tensors},
         {"type", "float"},
         {"redop", "sum"},
         {"iters", iterations(bytes)},
         {"time_us", us},
         {"rounds_us", figures.rounds_us},
         {"algbw", algbw},
         {"busbw", busbw},
         {"host_p50_us", host_us},
         {"wrong", figures.wrong}});
  }

  const Job& job_;
  Device& device_;
  const Options& options_;
  cuda::Stream stream_;
  std::string nccl_version_;
  std::vector<std::unique_ptr<System>> systems_;
  std::vector<double> times_us_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--smoke") {
      options.smoke = true;
      options.rounds = 3;
      continue;
    }
    if (word == "--no-peer") {
      options.with_peer = false;
      continue;
    }
    if (i + 1 == argc) usage_error("unknown option, or one without its value: " + word);
    const std::string value = argv[++i];
    const auto* const part = std::ranges::find(kPartNames, value);
    if (word == "--part" && part != std::end(kPartNames)) {
      options.part = static_cast<Part>(part - std::begin(kPartNames));
    } else if (word == "--rounds") {
      options.rounds = number_option(word, value, 1, 1000);
    } else if (word == "--title") {
      options.title = value;
    } else if (word == "--json") {
      options.origin.json = value;
    } else if (word == "--commit") {
      options.origin.commit = value;
    } else if (word == "--machine") {
      options.origin.machine = value;
    } else {
      usage_error("unknown option or value: " + word + " " + value);
    }
  }
  return options;
}

// Wrong elements.
std::size_t measure_packing(Bench& bench, const Job& job, bool smoke) {
  const std::size_t least = smoke ? 256 : std::size_t{4} << 10;
  const std::size_t most = smoke ? std::size_t{4} << 10 : std::size_t{4} << 20;
  std::size_t wrong = 0;
  std::size_t packed_up_to = 0;  // all sizes to it are faster packed
  std::size_t grouped_from = 0;
  if (!bench.has_pair()) return 0;
  for (std::size_t bytes = least; bytes <= most; bytes *= 4) {
    wrong += bench.measure(bytes, smoke ? 3 : 32);
    const bool packed_wins = bench.times_us()[1] < bench.times_us()[0];
    if (packed_wins && grouped_from == 0) packed_up_to = bytes;
    if (!packed_wins && grouped_from == 0) grouped_from = bytes;
  }
  if (job.rank() != 0) return wrong;
  if (grouped_from == 0) {
    std::printf("# packing wins at all sizes: KOLO_PACK_TENSOR_BYTES=%zu or more\n", packed_up_to);
  } else {
    std::printf(
        "# a group of NCCL's calls wins from tensors of %zu bytes on: "
        "KOLO_PACK_TENSOR_BYTES=%zu\n",
        grouped_from, packed_up_to);
  }
  return wrong;
}

int run(const Options& options) {
  const char* local_rank = std::getenv("KOLO_LOCAL_RANK");
  Device device(local_rank == nullptr ? 0 : std::atoi(local_rank));
  const Job job;
  std::size_t wrong = 0;
  {
    Bench bench(job, device, options);
    if (options.part == Part::kPacking) {
      wrong = measure_packing(bench, job, options.smoke);
    } else if (options.part == Part::kTiny) {
      wrong = bench.measure(std::size_t{1} << 10, options.smoke ? 150 : 2000);
    } else {
      const std::size_t most = options.smoke ? std::size_t{64} << 10 : std::size_t{64} << 20;
      for (std::size_t bytes = 4; bytes <= most; bytes *= 16) wrong += bench.measure(bytes, 1);
    }
  }
  if (job.rank() == 0 && options.part != Part::kPacking) {
    std::printf("# kolo's road: %s\n", job.road().c_str());
  }
  return wrong == 0 ? 0 : kWrongExit;
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::run(kolo::bench::parse(argc, argv)); }
