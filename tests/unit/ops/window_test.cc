// What the conformance suite cannot see of operations over windows and hosts: what they copy and
// send, how much they do at once, whom they wake, and what giving up means.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/conformance/hosts_job.h"

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

TEST(HostsOperations, NoPartialLeavesThatWasMadeOfMemoryGivenUp) {
  for (bool gives_up : {false, true}) {
    HostsJob job({0, 0, 1}, 1, TensorsIn::kArena, {});
    constexpr std::size_t kCount = 20000;
    std::vector<Operation*> running;
    for (std::size_t r = 0; r < 3; ++r) {
      std::byte* values = job.memory(r, kCount * sizeof(float));
      const Piece piece{.input = values, .output = values, .count = kCount};
      running.push_back(&job.allreduce(r, Algorithm::kDirect, {&piece, 1}, {}));
    }
    ASSERT_TRUE(running[0]->advance().is_ok());  // has said where its tensor lies
    if (gives_up) running[0]->cancel();
    Host::drive({running[1], running[2]});
    EXPECT_EQ(job.bytes_sent_by(1) == 0, gives_up);
  }
}

}  // namespace
}  // namespace kolo::internal
