// What the conformance suite cannot see of operations over windows and hosts: what they copy and
// send, how much they do at once, whom they wake, and what giving up means.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/block_tiles.h"
#include "tests/conformance/hosts_job.h"
#include "transport/subset_window.h"

namespace kolo::internal {
namespace {

constexpr std::size_t kTile = WindowLane::kTileBytes;

// The ranks of one window; `arenas`: of a size each.
struct Host {
  explicit Host(int size) : host(size, true) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(size); ++r) {
      operations.push_back(
          std::make_unique<WindowOperations>(host.window(r), host.lane_offset(r), host.arena(r)));
    }
  }
  // Drives all until nothing moves any more; what each said last.
  static std::vector<Progress> drive(const std::vector<Operation*>& running) {
    std::vector<Progress> last(running.size(), Progress::kMoved);
    for (int quiet = 0, turn = 0; quiet < 3 && turn < 1000000; ++turn) {
      ++quiet;
      for (std::size_t r = 0; r < running.size(); ++r) {
        const Result<Progress> progress = running[r]->advance();
        EXPECT_TRUE(progress.is_ok()) << progress.status().to_string();
        if (!progress) return last;
        last[r] = *progress;
        if (*progress == Progress::kMoved) quiet = 0;
      }
    }
    return last;
  }

  WindowHost host;
  std::vector<std::unique_ptr<WindowOperations>> operations;
};

// Every block is cut into parts that follow one another, and the parts of a tile have room in it.
TEST(BlockTiles, HoldEveryBlockOnceAndFit) {
  constexpr std::size_t kRoom = 100;
  const std::vector<std::vector<std::size_t>> all = {
      {0}, {1}, {99}, {1000, 0, 1}, {5, 5, 5, 5}, {0, 0, 777}, std::vector<std::size_t>(90, 13)};
  for (const std::vector<std::size_t>& counts : all) {
    BlockTiles cut;
    cut.cut(counts, kRoom);
    for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
      const Range block = cut.block(rank);
      EXPECT_EQ(block.count, counts[static_cast<std::size_t>(rank)]);
      const std::size_t end =
          rank + 1 < static_cast<int>(counts.size()) ? cut.offset(rank + 1) : kRoom;
      std::size_t at = block.begin;
      for (std::uint64_t tile = 0; tile < cut.tiles(); ++tile) {
        const Range part = cut.part(rank, tile);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(cut.offset(rank) + part.count, end);
        at = part.end();
      }
      EXPECT_EQ(at, block.end());
    }
  }
}

const std::vector<Progress> kBothDone = {Progress::kDone, Progress::kDone};

Operation& sum(WindowOperations& operations, const ReductionOrder& order, float* values,
               std::size_t count) {
  const Piece piece{.input = values, .output = values, .count = count};
  return operations.start_allreduce(order, {&piece, 1}, Reduction{});
}

// Of a lone tensor everything but this rank's own share is packed.
TEST(WindowOperations, CopyOrdinaryMemoryOnceAndAHalfAndArenasHalfOnce) {
  Host host(2);
  const ReductionOrder order = ReductionOrder::single_host(2);
  constexpr std::size_t kCount = 1000000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  std::vector<std::vector<float>> heap(2, std::vector<float>(kCount, 1.0F));
  std::vector<Operation*> running;
  for (std::size_t r = 0; r < 2; ++r) {
    running.push_back(&sum(*host.operations[r], order, heap[r].data(), kCount));
  }
  ASSERT_EQ(Host::drive(running), kBothDone);
  for (auto& operations : host.operations) {
    EXPECT_NEAR(static_cast<double>(operations->counters().bytes_packed), 0.5 * kBytes, 1000.0);
    EXPECT_EQ(operations->counters().bytes_unpacked, kBytes);
  }
  std::vector<float*> shared;
  for (std::size_t r = 0; r < 2; ++r) {
    shared.push_back(reinterpret_cast<float*>(host.host.allocate(r, kBytes, 0)));
    std::fill_n(shared[r], kCount, 1.0F);
    running[r] = &sum(*host.operations[r], order, shared[r], kCount);
  }
  ASSERT_EQ(Host::drive(running), kBothDone);
  EXPECT_EQ(std::count(shared[0], shared[0] + kCount, 2.0F), kCount);
  for (auto& operations : host.operations) {
    EXPECT_NEAR(static_cast<double>(operations->counters().bytes_packed), 0.5 * kBytes, 1000.0)
        << "packed what lay in the arena";
    EXPECT_NEAR(static_cast<double>(operations->counters().bytes_unpacked), 1.5 * kBytes, 1000.0);
  }
}

TEST(WindowOperations, OneAdvanceMovesOneTileAtMost) {
  Host host(2);
  const ReductionOrder order = ReductionOrder::single_host(2);
  std::vector<std::vector<float>> heap(2, std::vector<float>(2000000, 1.0F));
  std::vector<Operation*> running;
  for (std::size_t r = 0; r < 2; ++r) {
    running.push_back(&sum(*host.operations[r], order, heap[r].data(), heap[r].size()));
  }
  std::size_t done = 0;
  std::uint64_t before = 0;
  for (int turn = 0; done < 2 && turn < 10000; ++turn) {
    done = 0;
    for (std::size_t r = 0; r < 2; ++r) {
      const WindowLane::Counters& counters = host.operations[r]->counters();
      before = counters.bytes_packed + counters.bytes_unpacked;
      const Result<Progress> progress = running[r]->advance();
      ASSERT_TRUE(progress.is_ok());
      done += *progress == Progress::kDone ? 1u : 0u;
      ASSERT_LE(counters.bytes_packed + counters.bytes_unpacked - before, kTile);
    }
  }
  EXPECT_EQ(done, 2u);
}

TEST(WindowOperations, WakeOnlyWhoSleeps) {
  Host host(2);
  std::vector<Operation*> running = {&host.operations[0]->start_barrier(),
                                     &host.operations[1]->start_barrier()};
  ASSERT_EQ(Host::drive(running), kBothDone);
  EXPECT_EQ(host.host.window(0).counters().rings + host.host.window(1).counters().rings, 0u);
  host.host.window(1).set_asleep(true);
  running[0] = &host.operations[0]->start_barrier();
  ASSERT_TRUE(running[0]->advance().is_ok());
  EXPECT_EQ(host.host.window(0).counters().rings, 1u);
  ASSERT_TRUE(running[0]->advance().is_ok());
  EXPECT_EQ(host.host.window(0).counters().rings, 1u) << "rang for nothing";
}

TEST(WindowOperations, AfterACancelTheLaneServesNothingAndMemoryIsLeftAlone) {
  Host host(2);
  const ReductionOrder order = ReductionOrder::single_host(2);
  std::vector<std::vector<float>> heap(2, std::vector<float>(2000000, 1.0F));
  std::vector<Operation*> running;
  for (std::size_t r = 0; r < 2; ++r) {
    running.push_back(&sum(*host.operations[r], order, heap[r].data(), heap[r].size()));
  }
  for (int turn = 0; turn < 7; ++turn) {
    for (Operation* operation : running) ASSERT_TRUE(operation->advance().is_ok());
  }
  running[0]->cancel();
  const std::vector<float> left = heap[0];
  EXPECT_EQ(running[0]->advance().status().code(), StatusCode::kAborted);
  EXPECT_EQ(Host::drive({running[1]}), std::vector{Progress::kBlocked}) << "must not end";
  EXPECT_EQ(heap[0], left);
  EXPECT_EQ(host.operations[0]->start_barrier().advance().status().code(), StatusCode::kAborted);
  EXPECT_EQ(sum(*host.operations[0], order, heap[0].data(), 10).advance().status().code(),
            StatusCode::kAborted);
}

TEST(WindowOperations, NobodyTrustsWhatItReadInTheArenaOfOneWhoGaveUp) {
  Host host(2);
  constexpr std::size_t kBytes = 3 * kTile;
  std::byte* root = host.host.allocate(0, kBytes, 0);
  std::vector<std::byte> output(kBytes);
  Operation& sends = host.operations[0]->start_broadcast(0, root, root, kBytes);
  Operation& pulls = host.operations[1]->start_broadcast(0, nullptr, output.data(), kBytes);
  ASSERT_EQ(*sends.advance(), Progress::kMoved);
  ASSERT_EQ(*pulls.advance(), Progress::kMoved);
  sends.cancel();
  std::fill_n(root, kBytes, std::byte{7});  // its own again
  EXPECT_EQ(Host::drive({&pulls}), std::vector{Progress::kBlocked});
}

Piece scattered(const float* input, float* output, std::size_t count) {
  return {.input = input, .output = output, .count = count};
}

// Only what others reduce is packed, and nothing of what lies in an arena.
TEST(WindowOperations, ReduceScatterCopiesTheOthersBlocksOnceAndArenasNever) {
  Host host(2);
  const ReductionOrder order = ReductionOrder::single_host(2);
  constexpr std::size_t kCount = 300000;
  const std::vector<std::size_t> counts = {200000, 100000};
  std::vector<std::vector<float>> heap(2, std::vector<float>(kCount, 1.0F));
  std::vector<Operation*> running(2);
  for (bool arena : {false, true}) {
    std::vector<const float*> inputs = {heap[0].data(), heap[1].data()};
    std::vector<std::vector<float>> outputs(2);
    std::vector<std::uint64_t> before(2);
    for (std::size_t r = 0; r < 2; ++r) {
      if (arena) {
        auto* shared = reinterpret_cast<float*>(host.host.allocate(r, kCount * sizeof(float), 0));
        std::fill_n(shared, kCount, 1.0F);
        inputs[r] = shared;
      }
      outputs[r].resize(counts[r]);
      before[r] = host.operations[r]->counters().bytes_packed;
      running[r] = &host.operations[r]->start_reduce_scatter(
          order, scattered(inputs[r], outputs[r].data(), kCount), counts,
          {DataType::kFloat32, ReduceOp::kSum});
    }
    ASSERT_EQ(Host::drive(running), kBothDone);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(outputs[r], std::vector<float>(counts[r], 2.0F));
      EXPECT_EQ(host.operations[r]->counters().bytes_packed - before[r],
                arena ? 0 : counts[1 - r] * sizeof(float));
      EXPECT_EQ(host.operations[r]->counters().bytes_unpacked, 0U);
    }
  }
}

TEST(WindowOperations, AnAverageIsDividedByThoseWhoTookPart) {
  Host host(2);
  const ReductionOrder order = ReductionOrder::single_host(2);
  const Reduction average{.dtype = DataType::kFloat32, .op = ReduceOp::kAvg, .contributors = 1};
  for (std::size_t count : {std::size_t{10}, std::size_t{100000}}) {
    std::vector<std::vector<float>> values(2, std::vector<float>(count, 3.0F));
    std::fill(values[1].begin(), values[1].end(), 0.0F);  // has joined
    std::vector<float> block(count);
    std::vector<Operation*> running(2);
    for (std::size_t r = 0; r < 2; ++r) {
      running[r] = &host.operations[r]->start_reduce_scatter(
          order, scattered(values[r].data(), block.data(), count),
          std::vector<std::size_t>{count, 0}, average);
    }
    ASSERT_EQ(Host::drive(running), kBothDone);
    EXPECT_EQ(block, std::vector<float>(count, 3.0F));
    for (std::size_t r = 0; r < 2; ++r) {
      const Piece piece = scattered(values[r].data(), values[r].data(), count);
      running[r] = &host.operations[r]->start_allreduce(order, {&piece, 1}, average);
    }
    ASSERT_EQ(Host::drive(running), kBothDone);
    EXPECT_EQ(values[1], std::vector<float>(count, 3.0F));
  }
}

// Who shows its arena is not done before the others have read it.
TEST(WindowOperations, NobodyIsDoneWhileItsArenaIsRead) {
  constexpr std::size_t kBlock = kTile * 3 / 2;  // the rings hold it all
  const std::vector<Block> blocks = {{0, kBlock}, {kBlock, kBlock}};
  const ReductionOrder order = ReductionOrder::single_host(2);
  for (int kind = 0; kind < 3; ++kind) {
    Host host(2);
    std::byte* shared = host.host.allocate(0, 2 * kBlock, 0);
    std::fill_n(shared, 2 * kBlock, std::byte{1});
    std::vector<std::byte> heap(2 * kBlock, std::byte{1});
    std::vector<std::vector<std::byte>> outputs(2, std::vector<std::byte>(2 * kBlock));
    const auto start = [&](std::size_t r) -> Operation& {
      WindowOperations& of_rank = *host.operations[r];
      const std::byte* input = r == 0 ? shared : heap.data();
      if (kind == 0) return of_rank.start_alltoall(input, outputs[r].data(), blocks, blocks);
      if (kind == 1) return of_rank.start_allgather(input, outputs[r].data(), blocks);
      return of_rank.start_reduce_scatter(
          order, {.input = input, .output = outputs[r].data(), .count = 2 * kBlock},
          std::vector<std::size_t>(2, kBlock), {DataType::kUint8, ReduceOp::kSum});
    };
    Operation& shows = start(0);
    Operation& reads = start(1);
    for (int turn = 0; turn < 6; ++turn) ASSERT_TRUE(reads.advance().is_ok());  // packs it all
    EXPECT_EQ(Host::drive({&shows}), std::vector{Progress::kBlocked}) << kind;
    EXPECT_EQ(Host::drive({&shows, &reads}), kBothDone) << kind;
    const std::byte expected{kind == 2 ? std::uint8_t{2} : std::uint8_t{1}};
    const std::ptrdiff_t bytes = kind == 2 ? kBlock : 2 * kBlock;
    for (const auto& output : outputs) {
      EXPECT_EQ(std::count(output.begin(), output.begin() + bytes, expected), bytes) << kind;
    }
  }
}

// A rank gives up half-way: the others stay blocked and finish nothing, and what it takes back is
// left alone.
TEST(WindowOperations, NobodyEndsWhenOneGivesUpHalfWay) {
  constexpr std::size_t kBlock = 5 * kTile;
  const std::vector<Block> blocks = {{0, kBlock}, {kBlock, kBlock}};
  const ReductionOrder order = ReductionOrder::single_host(2);
  for (bool arena : {false, true}) {
    for (int kind = 0; kind < 3; ++kind) {
      Host host(2);
      std::vector<std::vector<std::byte>> outputs(2, std::vector<std::byte>(2 * kBlock));
      std::vector<std::vector<std::byte>> heap(2, std::vector<std::byte>(2 * kBlock));
      std::vector<Operation*> running;
      for (std::size_t r = 0; r < 2; ++r) {
        WindowOperations& of_rank = *host.operations[r];
        const std::byte* input = arena ? host.host.allocate(r, 2 * kBlock, 0) : heap[r].data();
        std::byte* output = outputs[r].data();
        const Piece piece{.input = input, .output = output, .count = 2 * kBlock};
        running.push_back(kind == 0   ? &of_rank.start_alltoall(input, output, blocks, blocks)
                          : kind == 1 ? &of_rank.start_allgather(input, output, blocks)
                                      : &of_rank.start_reduce_scatter(
                                            order, piece, std::vector<std::size_t>(2, kBlock),
                                            {DataType::kUint8, ReduceOp::kSum}));
      }
      for (int turn = 0; turn < 3; ++turn) {
        for (Operation* operation : running) ASSERT_TRUE(operation->advance().is_ok());
      }
      running[0]->cancel();
      const std::vector<std::byte> left = outputs[0];
      EXPECT_EQ(Host::drive({running[1]}), std::vector{Progress::kBlocked}) << kind << arena;
      EXPECT_EQ(outputs[0], left);
      Operation& later =
          host.operations[0]->start_alltoall(heap[0].data(), nullptr, blocks, blocks);
      EXPECT_EQ(later.advance().status().code(), StatusCode::kAborted);
    }
  }
}

// Members 1 and 3 of four ranks have a lane of their own, and move while the four are in the middle
// of something else.
TEST(WindowOperations, ASubsetRunsNextToTheWhole) {
  WindowHost host(4, true, 2);
  const std::vector<int> members = {1, 3};
  const ReductionOrder of_four = ReductionOrder::single_host(4);
  const ReductionOrder of_two = ReductionOrder::single_host(2);
  std::vector<std::unique_ptr<WindowOperations>> whole;
  std::vector<std::unique_ptr<SubsetWindow>> views;
  std::vector<std::unique_ptr<WindowOperations>> set;
  for (std::size_t r = 0; r < 4; ++r) {
    whole.push_back(
        std::make_unique<WindowOperations>(host.window(r), host.lane_offset(r), host.arena(r)));
  }
  for (int round = 0; round < 3; ++round) {
    set.clear();
    views.clear();
    for (int member : members) {
      const auto r = static_cast<std::size_t>(member);
      WindowLane::clear(host.window(r), host.lane_offset(r, 1));
      views.push_back(std::make_unique<SubsetWindow>(host.window(r), members));
      set.push_back(
          std::make_unique<WindowOperations>(*views.back(), host.lane_offset(r, 1), host.arena(r)));
    }
    constexpr std::size_t kCount = 500000;
    std::vector<std::vector<float>> all(4, std::vector<float>(kCount, 1.0F));
    std::vector<float*> some;
    std::vector<Operation*> of_all, of_some;
    for (std::size_t r = 0; r < 4; ++r) {
      of_all.push_back(&sum(*whole[r], of_four, all[r].data(), kCount));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const auto r = static_cast<std::size_t>(members[i]);
      some.push_back(reinterpret_cast<float*>(host.allocate(r, kCount * sizeof(float), 0)));
      std::fill_n(some[i], kCount, 5.0F);
      of_some.push_back(&sum(*set[i], of_two, some[i], kCount));
    }
    for (int turn = 0; turn < 3; ++turn) {
      for (Operation* operation : of_all) ASSERT_TRUE(operation->advance().is_ok());
    }
    ASSERT_EQ(Host::drive(of_some), kBothDone) << "needs none but its members";
    EXPECT_EQ(std::count(some[0], some[0] + kCount, 10.0F), kCount);
    EXPECT_EQ(std::count(some[1], some[1] + kCount, 10.0F), kCount);
    ASSERT_EQ(Host::drive(of_all), std::vector(4, Progress::kDone));
    EXPECT_EQ(std::count(all[2].begin(), all[2].end(), 4.0F), kCount);
  }
  host.release();
}

TEST(HostsOperations, SendWhatTheHostsMustExchangeAndNoMore) {
  struct Expected {
    std::vector<int> hosts;
    DataType dtype;
    double sent;  // by all ranks together, in tensors
  };
  // M hosts: (M-1) times the tensor in partials, and as much in results.
  const std::vector<Expected> cases = {
      {{0, 0, 1, 1}, DataType::kFloat32, 2},
      {{0, 0, 1, 1, 2, 2}, DataType::kFloat32, 4},
      {{0, 0, 1, 1}, DataType::kFloat16, 2 + 1},  // partials are f32
      {{0, 1}, DataType::kFloat16, 2},            // contributions as they are
      {{0, 0, 0, 1}, DataType::kBfloat16, 1 + 0.5 + 1},
  };
  for (const Expected& c : cases) {
    HostsJob job(c.hosts, 1, TensorsIn::kHeap, {});
    constexpr std::size_t kCount = 500000;
    const std::size_t bytes = kCount * element_bytes(c.dtype);
    std::vector<Operation*> running;
    for (std::size_t r = 0; r < c.hosts.size(); ++r) {
      std::byte* values = job.memory(r, bytes);
      std::fill_n(values, bytes, std::byte{});
      const Piece piece{.input = values, .output = values, .count = kCount};
      running.push_back(
          &job.allreduce(r, Algorithm::kDirect, {&piece, 1}, {c.dtype, ReduceOp::kSum}));
    }
    const std::vector<Progress> last = Host::drive(running);
    ASSERT_EQ(std::count(last.begin(), last.end(), Progress::kDone), std::ssize(last));
    EXPECT_NEAR(static_cast<double>(job.bytes_sent()) / static_cast<double>(bytes), c.sent, 0.01)
        << data_type_name(c.dtype) << " over " << c.hosts.size() << " ranks";
  }
}

// M hosts: each sends what is not its own, (M-1)/M of the tensor, once, in partials.
TEST(HostsOperations, AReduceScatterSendsPartialsOncePerHost) {
  struct Expected {
    std::vector<int> hosts;
    DataType dtype;
    double sent;  // by all ranks together, in tensors
  };
  const std::vector<Expected> cases = {{{0, 0, 1, 1}, DataType::kFloat32, 1},
                                       {{0, 0, 1, 1, 2, 2}, DataType::kFloat32, 2},
                                       {{0, 0, 1, 1}, DataType::kFloat16, 2},
                                       {{0, 1}, DataType::kFloat16, 1},
                                       {{0, 0, 0, 1}, DataType::kBfloat16, 0.5 + 0.75}};
  for (const Expected& c : cases) {
    HostsJob job(c.hosts, 1, TensorsIn::kHeap, {});
    const std::vector<std::size_t> counts(c.hosts.size(), 100000);
    const std::size_t count = 100000 * c.hosts.size();
    std::vector<Operation*> running;
    for (std::size_t r = 0; r < c.hosts.size(); ++r) {
      std::byte* values = job.memory(r, count * element_bytes(c.dtype));
      std::fill_n(values, count * element_bytes(c.dtype), std::byte{});
      const Piece piece{
          .input = values, .output = values + r * 100000 * element_bytes(c.dtype), .count = count};
      running.push_back(
          &job.reduce_scatter(r, Algorithm::kDirect, piece, counts, {c.dtype, ReduceOp::kSum}));
    }
    const std::vector<Progress> last = Host::drive(running);
    ASSERT_EQ(std::count(last.begin(), last.end(), Progress::kDone), std::ssize(last));
    EXPECT_NEAR(
        static_cast<double>(job.bytes_sent()) / static_cast<double>(count * element_bytes(c.dtype)),
        c.sent, 0.01)
        << data_type_name(c.dtype) << " over " << c.hosts.size() << " ranks";
  }
}

TEST(HostsOperations, NoPartialLeavesThatWasMadeOfMemoryGivenUp) {
  constexpr std::size_t kCount = 20000;
  const std::vector<std::size_t> counts = {6000, 6000, 8000};
  for (const auto& [gives_up, scatters] :
       {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    HostsJob job({0, 0, 1}, 1, TensorsIn::kArena, {});
    std::vector<Operation*> running;
    for (std::size_t r = 0; r < 3; ++r) {
      std::byte* values = job.memory(r, kCount * sizeof(float));
      const Piece piece{.input = values, .output = values, .count = kCount};
      const Piece block{
          .input = values, .output = values + r * 6000 * sizeof(float), .count = kCount};
      running.push_back(scatters ? &job.reduce_scatter(r, Algorithm::kDirect, block, counts, {})
                                 : &job.allreduce(r, Algorithm::kDirect, {&piece, 1}, {}));
    }
    // The one that gives up, and another of its host that sends something to the other host.
    const std::size_t one = scatters ? 1 : 0;
    ASSERT_TRUE(running[one]->advance().is_ok());  // has said where its tensor lies
    if (gives_up) running[one]->cancel();
    Host::drive({running[1 - one], running[2]});
    EXPECT_EQ(job.bytes_sent_by(1 - one) == 0, gives_up) << scatters;
  }
}

}  // namespace
}  // namespace kolo::internal
