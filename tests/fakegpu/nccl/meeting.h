// Where the ranks of a communicator meet: one piece of shared memory without a name. The process
// that makes a unique id holds its file; the others open it through that process's /proc/PID/fd,
// and when all have come the file is nobody's but theirs. Nothing is left behind, however a rank
// ends.
//
// Words are written by one rank each, and read by all; a bell wakes those that sleep. Data moves in
// chunks: through one slot per rank (collectives), or one box per pair (sends).
//
// Threads: one at a time, the stream's or the communicator's own; ring() from any. Ownership: owns
// its mapping and its file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/nccl/abi.h"

namespace fakegpu {

namespace nccl = kolo::internal::nccl;

// What all ranks must agree on in one collective.
struct OperationShape {
  int kind = 0;
  int dtype = 0;
  int op = 0;
  int root = 0;
  std::uint64_t count = 0;
  // From the beginning of what is registered; -1: it is not.
  std::int64_t input_offset = -1;
  std::int64_t output_offset = -1;

  bool operator==(const OperationShape&) const = default;
};

class Meeting {
 public:
  static constexpr int kMaxRanks = 32;
  static constexpr int kMaxShrinks = 8;
  static constexpr std::size_t kSlotBytes = 256 << 10;
  static constexpr std::size_t kBoxBytes = 32 << 10;

  // True: whoever waits should stop waiting.
  using Stop = std::function<bool()>;

  struct Identity {
    std::string bus_id;
    std::string host;
    bool may_share = false;  // its GPU with other ranks
  };

  // Makes a meeting place and its id. False: the system has no memory or files.
  static bool make_id(nccl::UniqueId* id);

  // Comes to the meeting and waits for all others; null with *error and *why set otherwise.
  static std::unique_ptr<Meeting> join(const nccl::UniqueId& id, int size, int rank,
                                       const Identity& me, const Stop& stop, int* error,
                                       std::string* why);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  void ring();
  // Sleeps until `ready`; false when `stop` said so first.
  bool wait_until(const std::function<bool()>& ready, const Stop& stop);

  // Takes one step in common: returns when all ranks have taken as many. False: stopped.
  bool step(const Stop& stop);
  // The same, apart from steps: true once every rank has said that it is finished.
  bool finish(const Stop& stop);

  // What a rank does now; of others it is good between two steps.
  OperationShape& shape(int rank);
  std::byte* slot(int rank);

  // A box from one rank to another holds one piece of a message at a time.
  bool box_is_free(int to) const;
  void put(int to, const std::byte* data, std::size_t bytes, std::uint64_t whole_bytes);
  // Null: nothing there. Takes what is there by taken().
  const std::byte* look(int from, std::size_t* bytes, std::uint64_t* whole_bytes) const;
  void taken(int from);

  // A rank that has ended, or left; -1: none.
  int find_dead() const;

  // Spreads the id of the n-th smaller communicator that comes out of this one.
  void publish_shrink(int number, const nccl::UniqueId& id);
  bool wait_for_shrink(int number, nccl::UniqueId* id, const Stop& stop);

 private:
  struct Header;
  struct RankWords;
  struct Box;
  Meeting(int file, int size, int rank) : file_(file), size_(size), rank_(rank) {}

  bool map();
  bool arrive(const Identity& me, const Stop& stop, int* error, std::string* why);
  RankWords& words(int rank) const;
  Box& box(int from, int to) const;
  static std::size_t bytes_for(int ranks);

  const int file_;
  const int size_;
  const int rank_;
  std::byte* base_ = nullptr;
  Header* header_ = nullptr;
  std::uint32_t steps_ = 0;
};

}  // namespace fakegpu
