// Training steps: all tensors of a network, submitted as a backward pass would, or in an order that
// no rank shares with another.
#include <algorithm>
#include <numeric>
#include <random>

#include "bench/common/statistics.h"
#include "bench/kolo_bench/call_case.h"
#include "bench/kolo_bench/measure.h"
#include "bench/kolo_bench/timing.h"

namespace kolo::bench {
namespace {

// The tensors of a set with their memory.
struct GradientSet {
  std::vector<Buffer> memory;
  std::vector<CallCase> cases;
  Subject total;  // bytes and count of all

  GradientSet(const Options& options, Library& library) {
    total.dtype = options.dtypes.front();
    total.op = options.ops.front();
    for (const Tensor& tensor : options.tensors) {
      Subject subject = total;
      subject.count = tensor.count;
      subject.bytes = tensor.count * dtype_bytes(total.dtype);
      memory.push_back(make_buffer(library, subject.bytes));
      cases.emplace_back(subject, library, nullptr, memory.back().get(), cases.size(),
                         "gradient." + tensor.name);
    }
    for (const Tensor& tensor : options.tensors) total.count += tensor.count;
    total.bytes = total.count * dtype_bytes(total.dtype);
  }

  void fill() {
    for (CallCase& tensor : cases) tensor.fill();
  }
};

// The last layer's gradients come first.
std::vector<std::size_t> order_of(const Options& options, int rank, std::uint64_t seed, int step) {
  std::vector<std::size_t> order(options.tensors.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  if (!options.shuffle) return order;
  std::seed_seq seeds = {seed, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step)};
  std::mt19937_64 random(seeds);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// Rank 0's choice, on all ranks.
std::uint64_t agreed_seed(const Options& options, Library& library) {
  if (options.seed) return *options.seed;
  std::vector<double> seed = {0};
  if (library.rank() == 0) seed[0] = static_cast<double>(std::random_device()() & 0x7fffffffU);
  library.largest(seed);
  return static_cast<std::uint64_t>(seed[0]);
}

std::size_t check_steps(const Options& options, Library& library, GradientSet& set) {
  std::size_t wrong = 0;
  for (int i = 0; i < options.checks; ++i) {
    set.fill();
    library.step();
    if (options.spoil && i == 0 && library.rank() == 0) set.cases.front().spoil();
    for (const CallCase& tensor : set.cases) wrong += tensor.wrong();
  }
  return static_cast<std::size_t>(library.sum(static_cast<double>(wrong)));
}

}  // namespace

std::size_t measure_steps(const Options& options, Library& library, Printer& printer) {
  const std::uint64_t seed = agreed_seed(options, library);
  GradientSet set(options, library);
  std::vector<Call> calls;
  for (const CallCase& tensor : set.cases) calls.push_back(tensor.call());
  library.prepare_step(calls, options.persistent);
  CounterRecord record(library, options.counters);
  set.fill();
  std::vector<double> steps_us;
  for (int step = 0; step < options.warmups + options.iterations; ++step) {
    library.set_order(order_of(options, library.rank(), seed, step));
    if (options.refill) set.fill();
    const bool timed = step >= options.warmups;
    library.barrier();
    if (timed) record.start();
    const Stopwatch watch;
    library.step();
    if (!timed) continue;
    steps_us.push_back(watch.us());
    record.stop(static_cast<int>(calls.size()));
  }
  library.largest(steps_us);
  const std::size_t wrong = check_steps(options, library, set);
  const StepFigure figure = {calls.size(), median(steps_us), quantile(steps_us, 0.9),
                             quantile(steps_us, 0.0)};
  printer.step_row(set.total, figure, wrong, seed, record.counted());
  return wrong;
}

}  // namespace kolo::bench
