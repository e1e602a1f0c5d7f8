// Ranks that stay make a smaller communicator out of one that has lost a rank: by NCCL's own
// shrinking, or, where it has none, by meeting anew.
#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "ops/nccl/communicator.h"
#include "ops/nccl/library.h"
#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

using namespace std::chrono_literals;
namespace nccl = kolo::internal::nccl;
using kolo::internal::Status;
using kolo::internal::StatusCode;

constexpr int kRanks = 3;

class Shrink : public ::testing::Test {
 protected:
  Shrink() {
    std::vector<std::string> unknown;
    EXPECT_TRUE(config_.load_environment(unknown).is_ok());
    auto library = nccl::Library::load(config_);
    EXPECT_TRUE(library.is_ok()) << library.status().to_string();
    library_ = *std::move(library);
    for (nccl::UniqueId& id : ids_) {
      EXPECT_EQ(library_->ncclGetUniqueId(&id), nccl::kSuccess);
    }
  }

  // The sum over the ranks of 1.
  void expect_sum(cuda::LaunchThread& thread, nccl::Communicator& communicator, int rank,
                  float sum) {
    const DeviceArray<float> data(rank, std::vector<float>(100, 1.0F));
    const Stream stream(rank);
    EXPECT_TRUE(thread
                    .call([&]() -> Status {
                      const auto device = thread.device(rank);
                      if (!device) return device.status();
                      return communicator.settle(
                          library_->ncclAllReduce(data.get(), data.get(), 100, nccl::kFloat32,
                                                  nccl::kSum, communicator.handle(), stream.get()),
                          "ncclAllReduce");
                    })
                    .is_ok());
    EXPECT_EQ(data.read(stream.get()), std::vector<float>(100, sum));
  }

  void run(int rank) {
    cuda::LaunchThread thread(*runtime(), 20ms, [] {});
    const nccl::Communicator::Limits limits{5s, 5s, 5s, 100ms};
    nccl::Communicator whole(*library_, thread, clock_, limits, rank);
    nccl::Communicator smaller(*library_, thread, clock_, limits, rank);
    EXPECT_TRUE(thread
                    .call([&]() -> Status {
                      const auto device = thread.device(rank);
                      if (!device) return device.status();
                      return whole.open(ids_[0], kRanks, rank);
                    })
                    .is_ok());
    expect_sum(thread, whole, rank, kRanks);
    together_.arrive_and_wait();
    const Status why(StatusCode::kPeerLost, "rank 1 is lost");
    if (rank != 1) {
      const int gone[] = {1};
      const Status status = thread.call(
          [&] { return whole.shrink_into(smaller, gone, ids_[1], kRanks - 1, rank / 2, why); });
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(whole.handle(), nullptr);
      EXPECT_EQ(whole.doomed().code(), StatusCode::kPeerLost);
      expect_sum(thread, smaller, rank, kRanks - 1);
    }
    EXPECT_TRUE(thread
                    .call([&] {
                      if (rank == 1) whole.doom(why);
                      smaller.close();
                      whole.close();
                      return Status::ok();
                    })
                    .is_ok());
    thread.stop();
  }

  kolo::internal::Config config_;
  kolo::internal::SteadyClock clock_;
  std::unique_ptr<const nccl::Library> library_;
  std::array<nccl::UniqueId, 2> ids_{};
  std::barrier<> together_{kRanks};
};

TEST_F(Shrink, TheRanksThatStayGoOn) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([this, rank] { run(rank); });
  for (std::thread& thread : threads) thread.join();
  const bool is_old = library_->ncclCommShrink == nullptr;
  EXPECT_EQ(fakes().calls("ncclCommShrink") > 0, !is_old);
}

}  // namespace
}  // namespace gpu_test
