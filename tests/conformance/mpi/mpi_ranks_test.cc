// Collectives and the ends of channels between real ranks: this program is started by mpiexec, and
// each process is one rank. All draw the same random cases from one seed, so that each knows every
// rank's input and what must come out.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "ops/operation_set.h"
#include "ops/reduction_order.h"
#include "tests/conformance/mesh.h"
#include "tests/conformance/reference.h"
#include "transport/mpi/mpi_fabric.h"

namespace kolo::internal {
namespace {

constexpr std::uint64_t kSeed = 990017;

// After a loss, kolo leaves MPI as it is; here all ranks live, and mpiexec wants to be told.
class Finalizer : public testing::Environment {
 public:
  void TearDown() override { MPI_Finalize(); }
};
const auto* const kFinalizer =
    testing::AddGlobalTestEnvironment(std::make_unique<Finalizer>().release());

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class MpiRanks : public testing::Test {
 protected:
  MpiRanks() : rank_(number("PMI_RANK", 0)), size_(number("PMI_SIZE", 1)) {
    auto world = MpiWorld::start(rank_, size_, KOLO_MPI_MODULE);
    EXPECT_TRUE(world.is_ok()) << world.status().to_string();
    EXPECT_EQ((*world)->duplicate(), Status::ok());
    PeerTable table;
    for (int peer = 0; peer < size_; ++peer) {
      table.peers.push_back({peer, 0, peer, "here", 0, {}, {}});
    }
    auto channels = mpi_channels(*world, table, rank_, 2);
    EXPECT_TRUE(channels.is_ok()) << channels.status().to_string();
    owned_ = *std::move(channels);
    for (const auto& channel : owned_[1]) channels_.push_back(channel.get());
  }

  ~MpiRanks() override { EXPECT_TRUE(take_leave()) << "no end of the channels"; }

  template <typename Done>
  bool drive(const Done& done) {
    return drive_until(done, [&] {
      for (const auto& stream : owned_) {
        for (const auto& channel : stream) {
          if (channel != nullptr) last_ = channel->advance();
        }
      }
      std::this_thread::yield();  // there are more ranks than cores
    });
  }

  bool take_leave() {
    const auto for_all = [&](const auto& what) {
      for (const auto& stream : owned_) {
        for (const auto& channel : stream) {
          if (channel != nullptr && !what(*channel)) return false;
        }
      }
      return true;
    };
    for_all([](Channel& channel) {
      channel.finish();
      return true;
    });
    return drive([&] { return for_all([](Channel& channel) { return channel.finished(); }); });
  }

  // The operation's end, or nothing if that takes too long.
  Status end_of(Operation& operation) {
    Status status = timed_out("no end of the operation");
    drive_until([&] { return status.code() != StatusCode::kTimedOut; },
                [&] {
                  const Result<Progress> progress = operation.advance();
                  if (!progress) {
                    status = progress.status();
                  } else if (*progress == Progress::kDone) {
                    status = Status::ok();
                  } else if (*progress == Progress::kBlocked) {
                    std::this_thread::yield();
                  }
                });
    return status;
  }

  Communicator communicator(const ReductionOrder* order) {
    return {rank_, size_, channels_, order, sequence_++};
  }

  void check_allreduce(Algorithm algorithm, DataType dtype, ReduceOp op, std::size_t count,
                       const std::vector<int>& hosts) {
    std::vector<reference::Bytes> inputs;
    for (int r = 0; r < size_; ++r) {
      inputs.push_back(reference::random_elements(dtype, count, random_));
    }
    const ReductionOrder order(hosts);
    reference::Bytes output = inputs[static_cast<std::size_t>(rank_)];
    const Piece piece{.input = output.data(), .output = output.data(), .count = count};
    const Status status =
        end_of(set_.start_allreduce(algorithm, communicator(&order), {&piece, 1}, {dtype, op}));
    const std::string where = "n=" + std::to_string(size_) + " rank " + std::to_string(rank_) +
                              " " + std::string(algorithm_name(algorithm)) + " " +
                              std::string(data_type_name(dtype)) + " " +
                              std::string(reduce_op_name(op)) + " " + std::to_string(count);
    ASSERT_EQ(status, Status::ok()) << where;
    const reference::Allreduce what{.dtype = dtype,
                                    .op = op,
                                    .prescale = 1.0,
                                    .postscale = 1.0,
                                    .host_index = hosts,
                                    .ring = algorithm == Algorithm::kRing && size_ > 1};
    ASSERT_TRUE(output == reference::allreduce(what, inputs)) << where;
  }

  const int rank_;
  const int size_;
  std::mt19937_64 random_{kSeed};
  OperationSet set_;
  std::vector<std::vector<std::unique_ptr<Channel>>> owned_;
  std::vector<Channel*> channels_;
  std::uint32_t sequence_ = 0;
  Status last_;
};

TEST_F(MpiRanks, AllreduceOfEveryTypeAndOperator) {
  std::vector<int> hosts(static_cast<std::size_t>(size_), 0);
  for (std::size_t r = 1; r < hosts.size(); ++r) hosts[r] = hosts[r - 1] + (r % 3 == 0 ? 1 : 0);
  const auto n = static_cast<std::size_t>(size_);
  for (int d = 0; d < kDataTypeCount; ++d) {
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto dtype = static_cast<DataType>(d);
      const auto op = static_cast<ReduceOp>(o);
      if (!can_reduce(dtype, op)) continue;
      for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
        const std::size_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 5003};
        check_allreduce(algorithm, dtype, op, counts[random_() % std::size(counts)], hosts);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Above and below what travels with its header, and in several pieces.
TEST_F(MpiRanks, AllreduceOfLargeSizes) {
  const std::vector<int> hosts(static_cast<std::size_t>(size_), 0);
  for (const std::size_t count :
       {std::size_t{2048}, std::size_t{2049}, std::size_t{300007}, (std::size_t{1} << 20) + 3}) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      check_allreduce(algorithm, DataType::kFloat32, ReduceOp::kSum, count, hosts);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MpiRanks, AllgatherBroadcastAndBarrier) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{17}, std::size_t{8192},
                                  std::size_t{8193}, std::size_t{1000003}}) {
    reference::Bytes all;
    reference::Bytes mine;
    for (int r = 0; r < size_; ++r) {
      const auto part = reference::random_elements(DataType::kUint8, bytes, random_);
      all.insert(all.end(), part.begin(), part.end());
      if (r == rank_) mine = part;
    }
    reference::Bytes gathered(all.size());
    const std::vector<std::size_t> sizes(static_cast<std::size_t>(size_), bytes);
    ASSERT_EQ(end_of(set_.start_allgather(Algorithm::kDirect, communicator(nullptr), mine.data(),
                                          gathered.data(), sizes)),
              Status::ok());
    ASSERT_TRUE(gathered == all) << bytes;
    const int root = static_cast<int>(random_() % static_cast<unsigned>(size_));
    auto sent = reference::random_elements(DataType::kUint8, bytes, random_);
    reference::Bytes got(bytes);
    ASSERT_EQ(
        end_of(set_.start_broadcast(communicator(nullptr), root,
                                    rank_ == root ? sent.data() : nullptr, got.data(), bytes)),
        Status::ok());
    ASSERT_TRUE(got == sent) << bytes;
    ASSERT_EQ(end_of(set_.start_barrier(communicator(nullptr))), Status::ok());
  }
}

// Blocks of sizes of their own, some of them empty.
TEST_F(MpiRanks, ReduceScatterAllgatherAndAlltoallOfUnevenBlocks) {
  const auto n = static_cast<std::size_t>(size_);
  const auto own = static_cast<std::size_t>(rank_);
  const std::vector<int> hosts(n, 0);
  const ReductionOrder order(hosts);
  for (const std::size_t limit : {std::size_t{3}, std::size_t{5000}, std::size_t{500000}}) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
      std::vector<std::size_t> counts, starts;
      std::size_t total = 0;
      for (std::size_t r = 0; r < n; ++r) {
        counts.push_back(random_() % 3 == 0 ? 0 : random_() % limit);
        starts.push_back(total);
        total += counts[r];
      }
      std::vector<reference::Bytes> inputs;
      for (std::size_t r = 0; r < n; ++r) {
        inputs.push_back(reference::random_elements(DataType::kFloat32, total, random_));
      }
      const reference::Bytes sums =
          reference::allreduce({.dtype = DataType::kFloat32,
                                .op = ReduceOp::kSum,
                                .prescale = 1.0,
                                .postscale = 1.0,
                                .host_index = hosts,
                                .ring = algorithm == Algorithm::kRing && n > 1,
                                .chunks = counts},
                               inputs);
      reference::Bytes all = inputs[own];
      std::vector<std::size_t> bytes;
      for (std::size_t count : counts) bytes.push_back(count * sizeof(float));
      std::byte* block = all.data() + starts[own] * sizeof(float);
      ASSERT_EQ(end_of(set_.start_reduce_scatter(algorithm, communicator(&order),
                                                 {all.data(), block, total}, counts, {})),
                Status::ok());
      ASSERT_EQ(
          end_of(set_.start_allgather(algorithm, communicator(nullptr), block, all.data(), bytes)),
          Status::ok());
      ASSERT_TRUE(all == sums) << algorithm_name(algorithm) << " below " << limit;

      // Rank a sends (7 a + 3 b) mod limit bytes to rank b, all of the value 16 a + b.
      const auto block_bytes = [&](std::size_t a, std::size_t b) {
        return (7 * a + 3 * b) % limit;
      };
      std::vector<std::size_t> send, receive;
      reference::Bytes sent, expected;
      for (std::size_t r = 0; r < n; ++r) {
        send.push_back(block_bytes(own, r));
        receive.push_back(block_bytes(r, own));
        sent.insert(sent.end(), send[r], static_cast<std::byte>(16 * own + r));
        expected.insert(expected.end(), receive[r], static_cast<std::byte>(16 * r + own));
      }
      reference::Bytes got(expected.size());
      ASSERT_EQ(end_of(set_.start_alltoall(communicator(nullptr), sent.data(), got.data(), send,
                                           receive)),
                Status::ok());
      ASSERT_TRUE(got == expected) << "all-to-all below " << limit;
    }
  }
}

// From rank 0 to rank 1, which cancels in the middle: after that nothing of it is written.
TEST_F(MpiRanks, ACancelledTransferTouchesNothingAndIsALossForItsSender) {
  if (size_ < 2 || rank_ > 1) return;
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const int peer = 1 - rank_;
  Channel& channel = *owned_[0][static_cast<std::size_t>(peer)];
  std::vector<std::byte> memory(kBytes, rank_ == 0 ? std::byte{0xff} : std::byte{0});
  Transfer transfer{.tag = 1, .data = memory.data(), .bytes = kBytes};
  if (rank_ == 0) {
    channel.post_send(transfer);
    Status status;
    ASSERT_TRUE(drive_until([&] { return !status.is_ok() || transfer.done; },
                            [&] { status = channel.advance(); }));
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
    channel.cancel();
    memory.assign(kBytes, std::byte{0x77});  // must not arrive over there
    EXPECT_FALSE(transfer.done);
    return;
  }
  channel.post_receive(transfer);
  ASSERT_TRUE(drive_until([&] { return memory.front() != std::byte{0} || transfer.done; },
                          [&] { static_cast<void>(channel.advance().is_ok()); }));
  ASSERT_FALSE(transfer.done) << "all of it came at once";
  channel.cancel();
  const std::vector<std::byte> frozen = memory;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (std::chrono::steady_clock::now() < limit) {
    for (const auto& other : owned_[1]) {  // MPI moves on
      if (other != nullptr) static_cast<void>(other->advance().is_ok());
    }
  }
  EXPECT_TRUE(memory == frozen);
  EXPECT_FALSE(channel.advance().is_ok());
}

}  // namespace
}  // namespace kolo::internal
