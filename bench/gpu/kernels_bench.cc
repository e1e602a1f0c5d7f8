// kolo's pack and unpack kernels beside the device's own copy of the same bytes, in one run: f32 as
// it is, tensors apart from each other, the buffer without gaps.
//
//     gpu_kernels_bench [--smoke] [--rounds N] [--json FILE] [--commit TEXT] [--machine TEXT]
//
// A round measures the three one after the other, in an order that turns; the figures are the
// rounds' medians. GB/s counts each byte once, though it is read and written.
#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/common/statistics.h"
#include "bench/common/text.h"
#include "bench/common/usage.h"
#include "bench/gpu/device.h"
#include "ops/cuda/kernels.h"

namespace kolo::bench {
namespace {

constexpr std::size_t kGap = 256;  // bytes between tensors
constexpr std::size_t kMostIterations = 200;

struct Options {
  bool smoke = false;
  std::size_t rounds = 11;
  Origin origin;
};

struct Shape {
  std::size_t bytes;
  std::size_t tensors;
  [[nodiscard]] std::size_t total() const { return bytes * tensors; }
  [[nodiscard]] std::size_t stride() const { return bytes + kGap; }
  [[nodiscard]] std::size_t spread() const { return stride() * tensors; }
};

constexpr Shape kShapes[] = {{std::size_t{1} << 10, 2000},
                             {std::size_t{64} << 10, 256},
                             {std::size_t{16} << 20, 1},
                             {std::size_t{256} << 20, 1}};
// As many kinds of launches, and few bytes: more than 120 tensors are several launches.
constexpr Shape kSmokeShapes[] = {{64, 250}, {1 << 10, 3}, {std::size_t{64} << 10, 1}};

constexpr int kKinds = 3;
constexpr std::array<const char*, kKinds> kNames = {"copy", "pack", "unpack"};

class Case {
 public:
  Case(Device& device, const cuda::Kernels& kernels, const Shape& shape)
      : device_(device),
        kernels_(kernels),
        shape_(shape),
        stream_(device.stream()),
        source_(device.allocate(shape.spread())),
        packed_(device.allocate(shape.total())),
        target_(device.allocate(shape.spread())) {
    device_.write(source_.get(), pattern(shape_.spread() / sizeof(float)));
    for (std::size_t i = 0; i < shape_.tensors; ++i) {
      const std::size_t count = shape_.bytes / sizeof(float);
      inputs_.push_back({source_.data() + i * shape_.stride(), i * shape_.bytes, count});
      outputs_.push_back({target_.data() + i * shape_.stride(), i * shape_.bytes, count});
    }
  }

  void queue(int kind) {
    if (kind == 0) {
      device_.must(device_.runtime().cudaMemcpyAsync(target_.get(), packed_.get(), shape_.total(),
                                                     cuda::kCopyDeviceToDevice, stream_.get()),
                   "cudaMemcpyAsync");
      return;
    }
    cuda::Batch batch;
    batch.tensors = kind == 1 ? inputs_ : outputs_;
    batch.buffer = packed_.get();
    const auto status =
        kind == 1 ? kernels_.pack(stream_.get(), batch) : kernels_.unpack(stream_.get(), batch);
    if (!status) die(status.text());
  }

  double time_us(int kind, std::size_t iterations) {
    const double us = device_.time_us(stream_.get(), [&] {
      for (std::size_t i = 0; i < iterations; ++i) queue(kind);
    });
    return us / static_cast<double>(iterations);
  }

  // Elements that pack or unpack puts elsewhere than it must, or changes.
  std::size_t wrong(int kind) {
    if (kind == 0) return 0;
    device_.must(
        device_.runtime().cudaMemsetAsync(target_.get(), 0, shape_.spread(), stream_.get()),
        "cudaMemsetAsync");
    queue(1);
    queue(2);
    device_.synchronize(stream_.get());
    const bool packed = kind == 1;
    const std::vector<float> found =
        packed ? device_.read(packed_.get(), shape_.total() / sizeof(float))
               : device_.read(target_.get(), shape_.spread() / sizeof(float));
    const std::vector<float> input = pattern(shape_.spread() / sizeof(float));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < shape_.tensors; ++i) {
      for (std::size_t k = 0; k < shape_.bytes / sizeof(float); ++k) {
        const std::size_t spread = i * (shape_.stride() / sizeof(float)) + k;
        const std::size_t dense = i * (shape_.bytes / sizeof(float)) + k;
        wrong += found[packed ? dense : spread] == input[spread] ? 0 : 1;
      }
    }
    return wrong;
  }

 private:
  static std::vector<float> pattern(std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 8191 + 1);
    return values;
  }

  Device& device_;
  const cuda::Kernels& kernels_;
  Shape shape_;
  cuda::Stream stream_;
  cuda::DeviceBuffer source_;
  cuda::DeviceBuffer packed_;
  cuda::DeviceBuffer target_;
  std::vector<cuda::PlacedTensor> inputs_;
  std::vector<cuda::PlacedTensor> outputs_;
};

// The number of wrong elements.
std::size_t measure(Device& device, const cuda::Kernels& kernels, const Shape& shape,
                    const Options& options) {
  Case one(device, kernels, shape);
  const std::size_t enough = (std::size_t{1} << 30) / shape.total() + 1;
  const std::size_t iterations = options.smoke ? 2 : std::min(enough, kMostIterations);
  std::array<std::vector<double>, kKinds> rounds;
  for (int kind = 0; kind < kKinds; ++kind) one.time_us(kind, iterations);  // warm
  for (std::size_t round = 0; round < options.rounds; ++round) {
    for (int turn = 0; turn < kKinds; ++turn) {
      const auto kind = (round + static_cast<std::size_t>(turn)) % kKinds;
      rounds[kind].push_back(one.time_us(static_cast<int>(kind), iterations));
    }
  }
  std::size_t all_wrong = 0;
  const double copy_us = median(rounds[0]);
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto& times = rounds[static_cast<std::size_t>(kind)];
    const double us = median(times);
    const double algbw = static_cast<double>(shape.total()) / us * 1e-3;
    const std::size_t wrong = one.wrong(kind);
    all_wrong += wrong;
    const char* name = kNames[static_cast<std::size_t>(kind)];
    std::printf("%12zu  %12zu  %8s  %8zu  %8s  %9.2f  %9.2f  %9.3f  %6zu\n", shape.total(),
                shape.total() / sizeof(float), "float", shape.tensors, name, us, algbw,
                copy_us / us, wrong);
    write_json(options.origin, device,
               {{"bench", "gpu_kernels"},
                {"what", name},
                {"bytes", shape.total()},
                {"tensors", shape.tensors},
                {"type", "float"},
                {"iters", iterations},
                {"time_us", us},
                {"rounds_us", times},
                {"algbw", algbw},
                {"share_of_copy", copy_us / us},
                {"wrong", wrong}});
  }
  std::fflush(stdout);
  return all_wrong;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--smoke") {
      options.smoke = true;
      options.rounds = 3;
      continue;
    }
    if (i + 1 == argc) usage_error("unknown option, or one without its value: " + word);
    const std::string value = argv[++i];
    if (word == "--rounds") {
      options.rounds = number_option(word, value, 1, 1000);
    } else if (word == "--json") {
      options.origin.json = value;
    } else if (word == "--commit") {
      options.origin.commit = value;
    } else if (word == "--machine") {
      options.origin.machine = value;
    } else {
      usage_error("unknown option " + word);
    }
  }
  return options;
}

int run(const Options& options) {
  Device device(0);
  const auto kernels = cuda::Kernels::load(device.runtime(), device.number());
  if (!kernels) {
    std::fprintf(stderr, "no kernels: %s\n", kernels.status().text().c_str());
    return kNoDeviceExit;
  }
  print_origin(options.origin, device, "");
  std::printf(
      "# kernels: %s; %zu interleaved rounds, medians\n"
      "#       size         count      type   tensors      what       time      algbw"
      "    of copy  #wrong\n"
      "#        (B)    (elements)                                      (us)     (GB/s)\n",
      cuda::kernels_note().c_str(), options.rounds);
  std::size_t wrong = 0;
  if (options.smoke) {
    for (const Shape& shape : kSmokeShapes) wrong += measure(device, **kernels, shape, options);
  } else {
    for (const Shape& shape : kShapes) wrong += measure(device, **kernels, shape, options);
  }
  return wrong == 0 ? 0 : kWrongExit;
}

}  // namespace
}  // namespace kolo::bench

int main(int argc, char** argv) { return kolo::bench::run(kolo::bench::parse(argc, argv)); }
