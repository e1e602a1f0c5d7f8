// A random program: what all ranks of a job do, drawn from one seed, so that every rank knows the
// whole of it without a word. How a rank goes about its part (order, threads, memory, waiting) is
// its own affair: see rank.h.
//
// A program is a list of phases. The units of a phase (single operations, and groups) depend on
// nothing in it, so ranks may submit them in any order; only units without a name keep their order
// within a set. Plain values.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/random.h"

namespace kolo::programs {

using internal::mix;
using internal::Rng;

enum class Kind {
  kAllreduce,
  kReduceScatter,
  kAllgather,
  kAlltoall,
  kBroadcast,
  kBarrier,
  kCreate,   // of set `root`
  kDestroy,  // of set `root`
};
const char* name_of(Kind kind);

// What some ranks do differently, on purpose.
enum class Wrong { kNothing, kCount, kDtype, kOp, kRoot, kScale, kKind, kShape, kRefused };

struct Operation {
  int id = 0;  // its own in the program
  Kind kind = Kind::kAllreduce;
  int set = 0;  // index into Program::sets
  std::string name;
  kolo_dtype dtype = KOLO_FLOAT32;
  kolo_op op = KOLO_SUM;
  int root = 0;           // a broadcast's, by its number in the job; or a set
  std::size_t count = 0;  // of every block, without counts
  // Elements by place in the set: what each gives (all-gather) or gets (reduce-scatter).
  std::vector<std::size_t> counts;
  // All-to-all: blocks[from][to].
  std::vector<std::vector<std::size_t>> blocks;
  bool allocate = false;
  bool matrix = false;  // its shape has two dimensions
  double prescale = 1.0;
  double postscale = 1.0;
  bool persistent = false;
  int after = -1;  // submitted in the callback of this operation (an index into its phase's units)

  Wrong wrong = Wrong::kNothing;
  std::vector<int> wrong_ranks;  // by number in the job, ascending
};

struct Unit {
  bool group = false;
  std::string name;  // a group's
  std::vector<Operation> members;
  [[nodiscard]] bool numbered() const {
    return group ? name.empty() : members.front().name.empty();
  }
  [[nodiscard]] bool has_wrong() const;
};

// Uneven steps on one set, then a join.
struct Epoch {
  int set = -1;  // -1: none
  std::vector<std::vector<Unit>> steps;
  std::vector<std::size_t> steps_of;  // by place
  std::string check;                  // the name of the all-reduce that compares the last rank
};

struct Phase {
  std::vector<Unit> units;
  Epoch epoch;
};

struct SetRanks {
  std::vector<int> ranks;                      // ascending
  [[nodiscard]] int place_of(int rank) const;  // -1: not in it
};

struct Program {
  std::uint64_t seed = 0;
  std::vector<SetRanks> sets;  // 0 is the world
  std::vector<Phase> phases;
};

// What a build can do; everything, in the end.
struct Abilities {
  bool sets = true;
  bool join = true;
  bool all_collectives = true;  // reduce-scatter, all-to-all, ragged counts, kolo_result
  bool adasum = true;
};

// `operations`: how many it has, roughly.
Program draw_program(std::uint64_t seed, int ranks, int operations, const Abilities& abilities);

// The operation as `rank` submits it: itself, or what a wrong rank makes of it.
Operation as_submitted(const Operation& operation, int rank);
bool is_wrong(const Operation& operation, int rank);

std::size_t bytes_of(kolo_dtype dtype);
bool is_float(kolo_dtype dtype);
bool reduces(Kind kind);
// For messages: "allreduce 'x7' f32[17] sum, set 2".
std::string text_of(const Operation& operation);

}  // namespace kolo::programs
