// Random programs of reductions, gathers and exchanges over windows and hosts: ragged blocks, empty
// ones, sizes around every border, tensors in ordinary memory and in arenas, in place and not. A
// fast rank runs ahead of the others, and writes over its tensors as soon as it may.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/conformance/hosts_job.h"
#include "tests/conformance/reference.h"
#include "tests/conformance/world.h"

namespace kolo::internal {
namespace {

using reference::Bytes;
using Sizes = std::vector<std::size_t>;

enum class Kind { kReduceScatter, kAllgather, kAlltoall, kAllreduce, kBroadcast };

struct Mixed {
  std::string name;
  CollectiveRoad road;
  std::vector<std::vector<int>> layouts;
};

// One call of a program: what each rank gives and must get.
struct Call {
  Kind kind = Kind::kAllreduce;
  Reduction reduction;
  double prescale = 1.0;
  int root = 0;
  std::vector<Sizes> counts;  // [rank][peer], in elements; often the same for all ranks
  std::vector<Sizes> received;
  std::vector<std::byte*> inputs, outputs;  // [rank]
  std::vector<Bytes> expected;              // [rank]
};

class Program {
 public:
  Program(World& world, int calls) : world_(world), n_(static_cast<std::size_t>(world.size())) {
    for (int c = 0; c < calls; ++c) calls_.push_back(make());
  }

  void run(const std::string& where) {
    std::vector<Rank> ranks(n_);
    std::vector<std::string> wrong(n_);
    const auto statuses = world_.run([&](std::size_t r) -> Operation& {
      ranks[r].start = [this, r](std::size_t c) -> Operation& { return start(calls_[c], r); };
      ranks[r].ended = [&, r](std::size_t c) {
        if (!take(calls_[c], r)) wrong[r] += " " + std::to_string(c) + ":" + text(calls_[c], r);
      };
      ranks[r].calls = calls_.size();
      return ranks[r];
    });
    ASSERT_TRUE(statuses.has_value()) << "no end: " << where;
    for (std::size_t r = 0; r < n_; ++r) {
      ASSERT_EQ((*statuses)[r], Status::ok()) << where;
      ASSERT_EQ(wrong[r], "") << where << ": rank " << r;
    }
    world_.job().release();
  }

 private:
  // One rank's calls one after the other, each begun as soon as its last one is done.
  struct Rank final : Operation {
    std::function<Operation&(std::size_t)> start;
    std::function<void(std::size_t)> ended;
    std::size_t calls = 0;
    std::size_t next = 0;
    Operation* current = nullptr;

    Result<Progress> advance() override {
      if (next == calls) return Progress::kDone;
      if (current == nullptr) current = &start(next);
      const Result<Progress> progress = current->advance();
      if (!progress || *progress != Progress::kDone) return progress;
      ended(next++);
      current = nullptr;
      return Progress::kMoved;
    }
    void cancel() override {}
  };

  std::uint64_t random(std::uint64_t below) { return world_.random()() % below; }

  // Elements: around the borders of inline, one-shot and tile, or anything, or nothing.
  std::size_t size(std::size_t element) {
    static constexpr std::array<std::size_t, 6> kBorders = {40,       4096,      32 << 10,
                                                            64 << 10, 256 << 10, 512 << 10};
    const std::uint64_t kind = random(8);
    if (kind == 0) return 0;
    if (kind == 1) return 1;
    if (kind == 2) return n_ - 1 + random(3);
    if (kind < 5) return random((std::size_t{500} << 10) / n_ / element);
    const std::size_t border =
        kBorders[random(kBorders.size())] / (random(4) != 0 ? n_ : 1) / element;
    return border + random(3) - std::min<std::size_t>(border, 1);
  }
  // For each rank, the same for all or not.
  Sizes sizes(std::size_t element) {
    Sizes all(n_, size(element));
    if (random(3) != 0) {
      for (std::size_t& one : all) one = size(element) / (random(2) + 1);
    }
    return all;
  }

  Call make() {
    Call call;
    call.kind = static_cast<Kind>(random(5));
    static constexpr std::array<DataType, 5> kTypes = {DataType::kFloat32, DataType::kFloat16,
                                                       DataType::kBfloat16, DataType::kInt8,
                                                       DataType::kInt64};
    static constexpr std::array<ReduceOp, 4> kOps = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax,
                                                     ReduceOp::kProd};
    call.reduction = {.dtype = kTypes[random(5)], .op = kOps[random(4)]};
    if (is_floating(call.reduction.dtype) && random(3) == 0) call.prescale = 0.3;
    call.root = static_cast<int>(random(n_));
    const std::size_t element = element_bytes(call.reduction.dtype);
    call.counts.assign(n_, sizes(element));
    if (call.kind == Kind::kAlltoall) {
      for (Sizes& of_rank : call.counts) of_rank = sizes(element);
    }
    call.received = call.counts;
    for (std::size_t r = 0; r < n_ && call.kind == Kind::kAlltoall; ++r) {
      for (std::size_t s = 0; s < n_; ++s) call.received[r][s] = call.counts[s][r];
    }
    fill(call, element);
    return call;
  }

  static std::size_t sum(const Sizes& sizes, std::size_t first_n) {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(first_n),
                           std::size_t{0});
  }
  static Bytes part(const Bytes& whole, std::size_t begin, std::size_t bytes) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin);
    return Bytes(first, first + static_cast<std::ptrdiff_t>(bytes));
  }

  // Random inputs, what must come out, and the memory for both.
  void fill(Call& call, std::size_t element) {
    std::vector<Bytes> inputs;
    for (std::size_t r = 0; r < n_; ++r) {
      const std::size_t all = sum(call.counts[r], n_);
      const std::size_t count = call.kind == Kind::kAllgather   ? call.counts[r][r]
                                : call.kind == Kind::kBroadcast ? call.counts[r][0]
                                                                : all;
      inputs.push_back(reference::random_elements(call.reduction.dtype, count, world_.random()));
    }
    expect(call, inputs, element);
    const bool in_place = random(2) == 0 && call.kind != Kind::kAlltoall;
    for (std::size_t r = 0; r < n_; ++r) {
      const std::size_t before = sum(call.counts[r], r) * element;
      std::byte* input = nullptr;
      std::byte* output = nullptr;
      if (in_place && call.kind == Kind::kAllgather) {
        output = world_.job().memory(r, call.expected[r].size());
        input = output + before;
      } else {
        input = world_.job().memory(r, inputs[r].size());
        output = !in_place ? world_.job().memory(r, call.expected[r].size())
                 : call.kind == Kind::kReduceScatter ? input + before
                                                     : input;
      }
      if (!inputs[r].empty()) std::memcpy(input, inputs[r].data(), inputs[r].size());
      call.inputs.push_back(input);
      call.outputs.push_back(output);
    }
  }

  void expect(Call& call, const std::vector<Bytes>& inputs, std::size_t element) {
    Bytes common;
    if (call.kind == Kind::kReduceScatter || call.kind == Kind::kAllreduce) {
      common = reference::allreduce({.dtype = call.reduction.dtype,
                                     .op = call.reduction.op,
                                     .prescale = call.prescale,
                                     .host_index = world_.job().host_index()},
                                    inputs);
    } else if (call.kind == Kind::kAllgather) {
      for (const Bytes& input : inputs) common.insert(common.end(), input.begin(), input.end());
    } else if (call.kind == Kind::kBroadcast) {
      common = inputs[static_cast<std::size_t>(call.root)];
    }
    call.expected.assign(n_, common);
    for (std::size_t r = 0; r < n_; ++r) {
      if (call.kind == Kind::kReduceScatter) {
        call.expected[r] =
            part(common, sum(call.counts[r], r) * element, call.counts[r][r] * element);
      }
      for (std::size_t s = 0; s < n_ && call.kind == Kind::kAlltoall; ++s) {
        const Bytes block =
            part(inputs[s], sum(call.counts[s], r) * element, call.counts[s][r] * element);
        call.expected[r].insert(call.expected[r].end(), block.begin(), block.end());
      }
    }
  }

  static Sizes in_bytes(Sizes counts, std::size_t element) {
    for (std::size_t& count : counts) count *= element;
    return counts;
  }

  Operation& start(const Call& call, std::size_t r) {
    CollectiveJob& job = world_.job();
    const std::size_t element = element_bytes(call.reduction.dtype);
    const Piece piece{.input = call.inputs[r],
                      .output = call.outputs[r],
                      .count = sum(call.counts[r], n_),
                      .prescale = call.prescale};
    switch (call.kind) {
      case Kind::kReduceScatter:
        return job.reduce_scatter(r, Algorithm::kDirect, piece, call.counts[r], call.reduction);
      case Kind::kAllgather:
        return job.allgather(r, Algorithm::kDirect, call.inputs[r], call.outputs[r],
                             in_bytes(call.counts[r], element));
      case Kind::kAlltoall:
        return job.alltoall(r, call.inputs[r], call.outputs[r], in_bytes(call.counts[r], element),
                            in_bytes(call.received[r], element));
      case Kind::kAllreduce: break;
      case Kind::kBroadcast:
        return job.broadcast(r, call.root, call.inputs[r], call.outputs[r],
                             call.counts[r][0] * element);
    }
    return job.allreduce(r, Algorithm::kDirect, {&piece, 1}, call.reduction);
  }

  // Whether the output is right; then this rank's tensors are written over.
  bool take(Call& call, std::size_t r) const {
    const bool right =
        std::equal(call.expected[r].begin(), call.expected[r].end(), call.outputs[r]);
    const std::size_t element = element_bytes(call.reduction.dtype);
    const std::size_t given = call.kind == Kind::kAllgather   ? call.counts[r][r]
                              : call.kind == Kind::kBroadcast ? call.counts[r][0]
                                                              : sum(call.counts[r], n_);
    std::fill_n(call.inputs[r], given * element, std::byte{0xee});
    std::fill_n(call.outputs[r], call.expected[r].size(), std::byte{0xdd});
    return right;
  }

  static std::string text(const Call& call, std::size_t r) {
    std::string text = "kind " + std::to_string(static_cast<int>(call.kind));
    text.append(" ").append(data_type_name(call.reduction.dtype));
    text.append(" ").append(reduce_op_name(call.reduction.op));
    for (std::size_t count : call.counts[r]) text += " " + std::to_string(count);
    return text;
  }

  World& world_;
  std::size_t n_;
  std::vector<Call> calls_;
};

class MixedPrograms : public testing::TestWithParam<Mixed> {};

TEST_P(MixedPrograms, GiveWhatTheReferenceGives) {
  std::uint64_t seed = 4242;
  for (const std::vector<int>& hosts : GetParam().layouts) {
    World world(GetParam().road, hosts, ++seed);
    std::string where = "seed " + std::to_string(seed) + " hosts";
    for (int host : hosts) where += " " + std::to_string(host);
    Program program(world, static_cast<int>(30 / kSanitizedSlowdown));
    program.run(where);
    if (HasFatalFailure()) return;
  }
}

std::vector<Mixed> roads() {
  constexpr InprocFaults kFaults{.seed = 9, .max_move_bytes = 70000, .stall_percent = 30};
  const std::vector<std::vector<int>> one = {one_host(1), one_host(2), one_host(3), one_host(4),
                                             one_host(7)};
  const std::vector<std::vector<int>> several = {
      {0, 0, 1, 1}, {0, 1, 2, 3}, {0, 0, 1}, {0, 0, 0, 1, 2, 2}, {3, 1, 3, 1, 1}};
  return {{"Heap", over_windows("Heap", TensorsIn::kHeap, false), one},
          {"Arena", over_windows("Arena", TensorsIn::kArena, false), one},
          {"Either", over_windows("Either", TensorsIn::kEither, false), one},
          {"EitherThreads", over_windows("EitherThreads", TensorsIn::kEither, true), one},
          {"HostsHeap", over_hosts("HostsHeap", TensorsIn::kHeap, {}, false), several},
          {"HostsArena", over_hosts("HostsArena", TensorsIn::kArena, {}, false), several},
          {"HostsFaulty", over_hosts("HostsFaulty", TensorsIn::kEither, kFaults, false), several},
          {"HostsThreads", over_hosts("HostsThreads", TensorsIn::kEither, {}, true), several}};
}

INSTANTIATE_TEST_SUITE_P(Roads, MixedPrograms, testing::ValuesIn(roads()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace kolo::internal
