// Ranks as threads over the in-memory road: wake-ups, kills, control links, and collectives that
// sleep when nothing moves.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "ops/operation_set.h"
#include "transport/inproc/inproc_channel.h"
#include "transport/inproc/inproc_control.h"

namespace kolo::internal {
namespace {

// A sleeping place that remembers being woken.
class Bell {
 public:
  void ring() {
    const std::lock_guard lock(mutex_);
    rung_ = true;
    condition_.notify_one();
  }
  // False if nobody rang for a long time.
  bool wait() {
    std::unique_lock lock(mutex_);
    const bool rung = condition_.wait_for(lock, std::chrono::seconds(20), [&] { return rung_; });
    rung_ = false;
    return rung;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool rung_ = false;
};

Status drive(Operation& operation, Bell& bell) {
  while (true) {
    const Result<Progress> progress = operation.advance();
    if (!progress) return progress.status();
    if (*progress == Progress::kDone) return Status::ok();
    if (*progress == Progress::kBlocked && !bell.wait()) return timed_out("nobody woke this rank");
  }
}

// Runs body(rank, communicator, bell) in a thread for every rank of a network.
template <typename Body>
void run_ranks(int size, const InprocFaults& faults, const Body& body) {
  InprocNetwork network(size, 1, faults);
  const ReductionOrder order = ReductionOrder::single_host(size);
  std::vector<Bell> bells(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    Bell& bell = bells[static_cast<std::size_t>(rank)];
    network.set_wake(rank, [&bell] { bell.ring(); });
  }
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto channels = std::move(network.channels(rank)[0]);
      std::vector<Channel*> row;
      for (const auto& channel : channels) row.push_back(channel.get());
      const Communicator communicator{.rank = rank, .size = size, .channels = row, .order = &order};
      body(communicator, bells[static_cast<std::size_t>(rank)], network);
      for (Channel* channel : row) {
        if (channel != nullptr) channel->finish();
      }
      for (Channel* channel : row) {
        while (channel != nullptr && channel->advance().is_ok() && !channel->finished()) {
          if (!bells[static_cast<std::size_t>(rank)].wait()) return;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < size; ++rank) network.set_wake(rank, {});
}

TEST(InprocThreads, CollectivesSleepAndAreWoken) {
  for (const InprocFaults& faults :
       {InprocFaults{}, InprocFaults{.seed = 5, .max_move_bytes = 50000, .stall_percent = 20}}) {
    run_ranks(4, faults, [](Communicator communicator, Bell& bell, InprocNetwork&) {
      OperationSet set;
      std::vector<float> values(300000);
      for (Algorithm algorithm : {Algorithm::kOneshot, Algorithm::kDirect, Algorithm::kRing}) {
        for (int repeat = 0; repeat < 5; ++repeat) {
          std::iota(values.begin(), values.end(), static_cast<float>(communicator.rank));
          const Piece piece{
              .input = values.data(), .output = values.data(), .count = values.size()};
          ++communicator.sequence;
          ASSERT_EQ(drive(set.start_allreduce(algorithm, communicator, {&piece, 1},
                                              {DataType::kFloat32, ReduceOp::kAvg}),
                          bell),
                    Status::ok());
          for (std::size_t i = 0; i < values.size(); i += 1009) {
            ASSERT_EQ(values[i], static_cast<float>(i) + 1.5F);
          }
        }
      }
      ++communicator.sequence;
      ASSERT_EQ(drive(set.start_barrier(communicator), bell), Status::ok());
    });
  }
}

TEST(InprocThreads, AKilledRankIsLostToAllOthersWhileTheySleep) {
  std::latch both_know(2);  // before either takes leave of the other
  run_ranks(3, {}, [&](const Communicator& communicator, Bell& bell, InprocNetwork& network) {
    OperationSet set;
    std::vector<double> values(100000, 1.0);
    if (communicator.rank == 2) {
      network.kill(2, "killed by signal 9");
      return;
    }
    const Piece piece{.input = values.data(), .output = values.data(), .count = values.size()};
    const Status status = drive(set.start_allreduce(Algorithm::kDirect, communicator, {&piece, 1},
                                                    {DataType::kFloat64, ReduceOp::kSum}),
                                bell);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
    both_know.arrive_and_wait();
  });
}

TEST(InprocControl, LinksMembersWithLeadersAndLeadersWithTheRoot) {
  InprocControlNetwork network({0, 0, 1, 1, 2});
  std::vector<std::unique_ptr<ControlLink>> links;
  for (int rank = 0; rank < 5; ++rank) links.push_back(network.link(rank));
  EXPECT_EQ(links[1]->send(0, "member to leader"), Status::ok());
  EXPECT_EQ(links[3]->send(2, ""), Status::ok());
  EXPECT_EQ(links[2]->send(0, "leader to root"), Status::ok());
  EXPECT_EQ(links[0]->send(4, "root to leader"), Status::ok());
  for (auto [from, to] : {std::pair{3, 0}, {1, 2}, {2, 4}, {0, 0}, {0, 5}, {0, -1}}) {
    EXPECT_EQ(links[static_cast<std::size_t>(from)]->send(to, "x").code(), StatusCode::kPeerLost)
        << from << " to " << to;
  }
  auto event = links[0]->poll();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->rank, 1);
  EXPECT_EQ(event->bytes, "member to leader");
  event = links[0]->poll();
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->rank, 2);
  EXPECT_FALSE(links[0]->poll().has_value());
  EXPECT_EQ(links[0]->counters().frames_received, 2u);
  EXPECT_EQ(links[0]->send(4, std::string(ControlLink::kMaxFrameBytes + 1, 'x')).code(),
            StatusCode::kResource);
}

TEST(InprocControl, TellsACleanEndFromALoss) {
  InprocControlNetwork network({0, 0, 0});
  auto root = network.link(0);
  auto leaves = network.link(1);
  auto vanishes = network.link(2);
  ASSERT_EQ(leaves->send(0, "last words"), Status::ok());
  leaves->finish();
  vanishes.reset();
  auto event = root->poll();
  ASSERT_TRUE(event && event->kind == ControlEvent::Kind::kFrame);
  event = root->poll();
  ASSERT_TRUE(event && event->kind == ControlEvent::Kind::kClosed && event->rank == 1);
  event = root->poll();
  ASSERT_TRUE(event && event->kind == ControlEvent::Kind::kLost && event->rank == 2);
  EXPECT_FALSE(event->bytes.empty());
  EXPECT_FALSE(root->poll().has_value()) << "each end is told once";
  EXPECT_EQ(root->send(2, "x").code(), StatusCode::kPeerLost);
  EXPECT_FALSE(root->finished());
  root->finish();
  EXPECT_TRUE(root->finished());
  EXPECT_TRUE(leaves->finished());
}

TEST(InprocControl, AKilledRankIsReportedOnBothSides) {
  InprocControlNetwork network({0, 0});
  auto root = network.link(0);
  auto member = network.link(1);
  int woken = 0;
  network.set_wake(0, [&] { ++woken; });
  network.kill(1, "killed by signal 9");
  EXPECT_EQ(woken, 1);
  auto event = root->poll();
  ASSERT_TRUE(event && event->kind == ControlEvent::Kind::kLost);
  EXPECT_EQ(event->bytes, "killed by signal 9");
  event = member->poll();
  ASSERT_TRUE(event && event->kind == ControlEvent::Kind::kLost);
  EXPECT_EQ(member->send(0, "x").code(), StatusCode::kPeerLost);
}

TEST(InprocControl, FramesCrossThreadsInOrder) {
  InprocControlNetwork network({0, 0});
  auto root = network.link(0);
  auto member = network.link(1);
  Bell bell;
  network.set_wake(0, [&] { bell.ring(); });
  std::thread sender([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(member->send(0, std::to_string(i)), Status::ok());
  });
  int next = 0;
  while (next < 1000) {
    const auto event = root->poll();
    if (!event) {
      ASSERT_TRUE(bell.wait());
      continue;
    }
    ASSERT_EQ(event->bytes, std::to_string(next));
    ++next;
  }
  sender.join();
  network.set_wake(0, {});
}

}  // namespace
}  // namespace kolo::internal
