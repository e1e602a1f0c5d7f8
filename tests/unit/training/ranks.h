// Ranks: the C++ contexts of a job as threads of one process, over the real library and loopback.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kolo/kolo.hpp"
#include "transport/rendezvous/rendezvous.h"

namespace training_test {

// Runs `body` as every rank of a job of `size` ranks at once. What it throws fails the test.
inline void on_ranks(int size, const std::function<void(kolo::Context&)>& body,
                     const std::string& transport = "") {
  const std::string job = "training test";
  const std::string secret = "a secret of sufficient length";
  auto server = kolo::internal::RendezvousServer::start("127.0.0.1:0", size, {job, secret},
                                                        std::chrono::seconds(20));
  ASSERT_TRUE(server.is_ok()) << server.status().to_string();
  const auto run = [&](int rank) {
    try {
      const std::string number = std::to_string(rank);
      const std::string ranks = std::to_string(size);
      kolo::Config config;
      config.set("rank", number).set("size", ranks).set("local_rank", number);
      config.set("local_size", ranks).set("launcher", "test").set("job", job);
      config.set("secret", secret).set("rendezvous", (*server)->endpoint());
      if (!transport.empty()) config.set("transport", transport);
      kolo::Context context(config);
      body(context);
      // One that leaves ends what the others are still doing.
      context.barrier(kolo::Options().name("the end of the test"));
      context.shutdown();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " of " << size << ": " << error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace training_test
