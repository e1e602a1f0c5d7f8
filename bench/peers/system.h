// System: one communication library as the workers measure it.
//
// Each worker program links one library only and brings a System for it; the loops in measure.h
// are the same for all. A System belongs to one thread; its calls block, and every rank makes the
// same calls in the same order. Failures end the worker (die()): a benchmark has nothing to save.
#pragma once

#include <cstddef>

namespace kolo::bench {

class System {
 public:
  virtual ~System() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  // Whatever is worth doing once for calls with this buffer: a name, a registration. The buffer
  // outlives the next prepare().
  virtual void prepare(float* data, std::size_t count) = 0;
  // Sums the prepared buffer over the ranks, in place.
  virtual void allreduce() = 0;
  // Sums one number over the ranks, beside the prepared buffer.
  virtual double sum(double value) = 0;
};

}  // namespace kolo::bench
