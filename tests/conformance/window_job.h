// WindowJob: the ranks of one host over windows in memory, on one thread or on one each, with
// tensors in ordinary memory, in arenas, or either by chance.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <optional>
#include <vector>

#include "ops/collectives.h"
#include "tests/conformance/job.h"
#include "transport/arena.h"
#include "transport/inproc/inproc_window.h"

namespace kolo::internal {

enum class TensorsIn { kHeap, kArena, kEither };

// The windows of one host's ranks, an arena and lanes on each.
class WindowHost {
 public:
  WindowHost(int size, bool arenas, std::size_t lanes = 1) {
    constexpr std::size_t kSegmentBytes = std::size_t{1} << 30;  // pages appear when touched
    auto made = make_inproc_windows(size, kSegmentBytes);
    if (!made) {
      ADD_FAILURE() << made.status().to_string();
      return;
    }
    windows_ = std::move(*made);
    for (auto& window : windows_) {
      std::vector<std::size_t>& offsets = offsets_.emplace_back();
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const auto offset = window->carve(WindowLane::kBytes);
        if (!offset) {
          ADD_FAILURE() << offset.status().to_string();
          return;
        }
        offsets.push_back(*offset);
      }
      if (arenas) arenas_.push_back(std::make_unique<Arena>(*window));
    }
  }

  [[nodiscard]] Window& window(std::size_t local) { return *windows_[local]; }
  [[nodiscard]] std::size_t lane_offset(std::size_t local, std::size_t lane = 0) const {
    return offsets_[local][lane];
  }
  [[nodiscard]] Arena* arena(std::size_t local) const {
    return arenas_.empty() ? nullptr : arenas_[local].get();
  }

  // Memory in the arena of `local`, off alignment.
  std::byte* allocate(std::size_t local, std::size_t bytes, std::size_t misalignment) {
    const auto memory = arenas_[local]->allocate(bytes + misalignment);
    if (!memory) {
      ADD_FAILURE() << memory.status().to_string();
      return nullptr;
    }
    blocks_.emplace_back(arenas_[local].get(), *memory);
    return static_cast<std::byte*>(*memory) + misalignment;
  }
  void release() {
    for (auto& [arena, memory] : blocks_) EXPECT_EQ(arena->free(memory), Status::ok());
    blocks_.clear();
  }

 private:
  std::vector<std::unique_ptr<Window>> windows_;
  std::vector<std::vector<std::size_t>> offsets_;  // [local][lane]
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::pair<Arena*, void*>> blocks_;
};

class WindowJob final : public CollectiveJob {
 public:
  WindowJob(const std::vector<int>& hosts, std::uint64_t seed, TensorsIn where, bool sleep)
      : CollectiveJob(hosts, seed),
        map_(hosts),
        host_(size(), where != TensorsIn::kHeap),
        where_(where),
        sleep_(sleep),
        asleep_(hosts.size()) {
    for (std::size_t r = 0; r < hosts.size(); ++r) {
      collectives_.push_back(std::make_unique<HostsCollectives>(
          host_.window(r), host_.lane_offset(r), host_.arena(r), map_,
          Communicator{.rank = static_cast<int>(r), .size = size()}));
    }
  }

  Collectives& collectives(std::size_t rank, Algorithm) override { return *collectives_[rank]; }

  std::byte* memory(std::size_t rank, std::size_t bytes) override {
    if (where_ == TensorsIn::kHeap || (where_ == TensorsIn::kEither && random()() % 2 == 0)) {
      return CollectiveJob::memory(rank, bytes);
    }
    return host_.allocate(rank, bytes, random()() % kAlignments);
  }
  void release() override {
    host_.release();
    CollectiveJob::release();
  }

  // On threads a blocked rank sleeps: first says so, looks once more, and then waits for its bell.
  void idle(std::size_t rank) override {
    if (!sleep_) return;
    if (asleep_[rank] == 0) {
      asleep_[rank] = 1;
      host_.window(rank).set_asleep(true);
      return;
    }
    pollfd bell{.fd = host_.window(rank).bell(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&bell, 1, 10000), 1) << "nobody woke rank " << rank;
    std::uint64_t rings = 0;
    EXPECT_EQ(::read(bell.fd, &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
    host_.window(rank).set_asleep(false);
    asleep_[rank] = 0;
  }

 private:
  HostMap map_;
  WindowHost host_;
  TensorsIn where_;
  bool sleep_;
  std::vector<int> asleep_;  // by rank, each written by its own thread
  std::vector<std::unique_ptr<HostsCollectives>> collectives_;
};

inline CollectiveRoad over_windows(std::string name, TensorsIn where, bool threads) {
  return {.name = std::move(name),
          .make =
              [where, threads](const std::vector<int>& hosts, std::uint64_t seed) {
                return std::make_unique<WindowJob>(hosts, seed, where, threads);
              },
          .algorithms = {Algorithm::kDirect},
          .layouts = [](int n) { return std::vector<std::vector<int>>{one_host(n)}; },
          .sampled = threads,
          .threads = threads};
}

}  // namespace kolo::internal
