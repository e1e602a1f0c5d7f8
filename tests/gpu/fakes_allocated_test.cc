// A device without memory for an output of kolo's making: the rank where that is so is told, the
// others are told of it, and nothing is left.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/gpu/fakes.h"

namespace gpu_test {
namespace {

constexpr int kRanks = 2;

struct Told {
  kolo_status status = KOLO_OK;
  std::string text;
};

kolo::Config config_of(int rank, const std::string& rendezvous) {
  kolo::Config config;
  config.set("rank", std::to_string(rank)).set("size", std::to_string(kRanks));
  config.set("local_rank", std::to_string(rank)).set("local_size", std::to_string(kRanks));
  config.set("launcher", "test").set("job", "allocated").set("rendezvous", rendezvous);
  config.set("secret", "a secret of sufficient length");
  return config;
}

Told gather(kolo::Context& context, const std::string& name, const DeviceArray<float>& data) {
  kolo_options options = KOLO_OPTIONS_INIT;
  options.name = name.c_str();
  options.allocate = 1;
  options.device = context.rank();
  kolo_request request = KOLO_REQUEST_NULL;
  must(kolo_allgather(context.handle(), data.get(), nullptr, data.count(), KOLO_FLOAT32, &options,
                      &request));
  Told told;
  told.status = kolo_wait(context.handle(), &request, KOLO_FOREVER);
  if (told.status != KOLO_OK) told.text = kolo_last_error();
  must(kolo_request_free(context.handle(), &request));
  return told;
}

TEST(Allocated, WithoutMemoryOneRankSaysSoToAll) {
  auto server = kolo::internal::RendezvousServer::start(
      "127.0.0.1:0", kRanks, {"allocated", "a secret of sufficient length"},
      std::chrono::seconds(20));
  ASSERT_TRUE(server.is_ok()) << server.status().to_string();
  std::array<Told, kRanks> told;
  std::vector<std::thread> threads;
  std::barrier together(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      kolo::Context context(config_of(rank, (*server)->endpoint()));
      const DeviceArray<float> data(rank, std::vector<float>(1000, 1.0F));
      EXPECT_EQ(gather(context, "good", data).status, KOLO_OK);
      together.arrive_and_wait();
      if (rank == 0) {
        EXPECT_EQ(fakes().set_faults("cudaMalloc:1:oom"), 0);
      }
      together.arrive_and_wait();
      told[static_cast<std::size_t>(rank)] = gather(context, "bad", data);
      together.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fakes().set_faults(""), 0);
  const auto here = std::ranges::find(told, KOLO_RESOURCE, &Told::status);
  ASSERT_NE(here, told.end()) << told[0].text << "\n" << told[1].text;
  EXPECT_NE(here->text.find("'bad': no memory for its output of 2000 elements of f32"),
            std::string::npos)
      << here->text;
  const Told& other = told[here == told.begin() ? 1 : 0];
  EXPECT_EQ(other.status, KOLO_ABORTED) << other.text;
  EXPECT_NE(other.text.find("no memory for its output"), std::string::npos) << other.text;
}

}  // namespace
}  // namespace gpu_test
