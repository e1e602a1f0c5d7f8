// Library: one communication library as kolo-bench measures it. kolo-bench brings kolo, the peer's
// program brings MPI; what measures is the same code for both.
//
// A Library belongs to one thread; all ranks make the same calls in the same order. Failures end
// the program (die()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/kolo_bench/options.h"
#include "bench/kolo_bench/words.h"

namespace kolo::bench {

// One collective with its memory, which outlives its use.
struct Call {
  Collective collective = Collective::kAllreduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // as in kolo.h
  kolo_dtype dtype = KOLO_FLOAT32;
  kolo_op op = KOLO_SUM;
  int root = 0;
  std::string name;  // the same on all ranks
};

// Who is measured, for people and for JSON.
struct Facts {
  std::string system;   // "kolo", "mpich"
  std::string version;  // "0.1.0"
  std::string road;     // "tcp"
  int hosts = 1;
  std::string memory;  // "malloc", "kolo"
};

class Library {
 public:
  virtual ~Library() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual Facts facts() const = 0;
  [[nodiscard]] virtual bool can_reduce(kolo_dtype dtype, kolo_op op) const = 0;

  // What may be done once for many calls of run(call).
  virtual void prepare(const Call& call) = 0;
  // Blocks until the last prepared call is done once more.
  virtual void run() = 0;

  // A training step's operations, for step(). Valid until the next prepare_step().
  virtual void prepare_step(const std::vector<Call>& calls, bool persistent) = 0;
  // This rank's order for the next step: a permutation of the calls' places.
  virtual void set_order(const std::vector<std::size_t>& order) = 0;
  // Does all of the prepared operations once, submitting them in this rank's order if the library
  // can take them in any.
  virtual void step() = 0;

  virtual void barrier() = 0;
  // values[i] = the largest of all ranks' values[i].
  virtual void largest(std::vector<double>& values) = 0;
  virtual double sum(double value) = 0;

  // Memory for inputs and outputs; null never. Freed with release().
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;

  // What this rank's library has counted so far; empty if it does not count.
  virtual std::map<std::string, double> counters() = 0;
};

// Owns a piece of a Library's memory.
struct Release {
  Library* library = nullptr;
  void operator()(std::byte* memory) const { library->release(memory); }
};
using Buffer = std::unique_ptr<std::byte, Release>;

inline Buffer make_buffer(Library& library, std::size_t bytes) {
  return {static_cast<std::byte*>(library.allocate(bytes)), Release{&library}};
}

// malloc's memory, touched; for libraries without memory of their own.
void* allocate_plain(std::size_t bytes);

}  // namespace kolo::bench
